// The pixels of an image, the same bytes as bitfactor reads in Python: no colour profile is applied, an image is
// turned as its EXIF data says, and colours under a transparency are those of the file.

/** Decodes a file; `pixelsOf` gives what it holds. */
export const decode = (file) => createImageBitmap(file, { premultiplyAlpha: "none", colorSpaceConversion: "none" });

const STRIP = 1 << 22; // pixels: some browsers have no canvas of more than 2^24

/** The pixels of an ImageBitmap, or of a video's frame with its size, as an ImageData has them. */
export function pixelsOf(source, width = source.width, height = source.height) {
  const pixels = { data: new Uint8ClampedArray(4 * width * height), width, height };
  const rows = Math.max(1, Math.min(height, Math.floor(STRIP / width)));
  const context = new OffscreenCanvas(width, rows).getContext("2d", { willReadFrequently: true });
  for (let top = 0; top < height; top += rows) {
    const count = Math.min(rows, height - top);
    context.clearRect(0, 0, width, rows);
    context.drawImage(source, 0, -top);
    pixels.data.set(context.getImageData(0, 0, width, count).data, 4 * width * top);
  }
  return isOpaque(pixels) ? pixels : (withColours(source, width, height) ?? pixels);
}

const LONGEST = 64; // as in Python

/**
 * An image with black beside it, in the proportions of a network's `image`, so that the network sees all of it.
 * `part` is what it sees, in the image's own pixels.
 */
export function padded({ data, width, height }, image) {
  const [across, down] = [width / image.width, height / image.height];
  const side = Math.max(across, down);
  if (side > LONGEST * Math.min(across, down))
    throw new RangeError(
      `expected an image at most ${LONGEST} times as long, for its other side, as the input, found ${width} x ${height} pixels`,
    );
  const [w, h] = [Math.ceil(side * image.width), Math.ceil(side * image.height)];
  const [left, top] = [(w - width) >> 1, (h - height) >> 1];
  const pixels = { data: new Uint8ClampedArray(4 * w * h), width: w, height: h };
  for (let y = 0; y < height; y++) {
    pixels.data.set(data.subarray(4 * y * width, 4 * (y + 1) * width), 4 * ((top + y) * w + left));
  }
  return { pixels, part: { left: -left, top: -top, width: w, height: h } };
}

function isOpaque({ data }) {
  for (let i = 3; i < data.length; i += 4) if (data[i] < 255) return false;
  return true;
}

// A 2D canvas multiplies colours by their alpha; a texture does not. Null where there is none so large, or it failed.
function withColours(source, width, height) {
  const gl = new OffscreenCanvas(1, 1).getContext("webgl2");
  if (!gl || Math.max(width, height) > gl.getParameter(gl.MAX_TEXTURE_SIZE)) return null;
  gl.pixelStorei(gl.UNPACK_PREMULTIPLY_ALPHA_WEBGL, false);
  gl.pixelStorei(gl.UNPACK_COLORSPACE_CONVERSION_WEBGL, gl.NONE);
  const texture = gl.createTexture();
  gl.bindTexture(gl.TEXTURE_2D, texture);
  gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, gl.RGBA, gl.UNSIGNED_BYTE, source);
  gl.bindFramebuffer(gl.FRAMEBUFFER, gl.createFramebuffer());
  gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0, gl.TEXTURE_2D, texture, 0);
  const data = new Uint8ClampedArray(4 * width * height);
  gl.readPixels(0, 0, width, height, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(data.buffer));
  const read = gl.getError() === gl.NO_ERROR && !gl.isContextLost();
  gl.getExtension("WEBGL_lose_context")?.loseContext();
  return read ? { data, width, height } : null;
}
