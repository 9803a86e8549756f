// The page that `bitfactor page` writes: a photo or the camera, and what the network says of it.
import { Network } from "./bitfactor.js";
import { keypoints, softmax } from "./answers.js";
import { decode, padded, pixelsOf } from "./images.js";

const options = JSON.parse(document.getElementById("options").textContent);
const element = (id) => document.getElementById(id);
const view = element("view");
let network;
let camera; // the stream, while it runs
let turn = 0; // of the image or camera that was asked for last

function answer(photo) {
  const { pixels, part } = options.finds === "keypoints" ? padded(photo, network.image) : { pixels: photo };
  const x = network.prepare(pixels);
  const start = performance.now();
  const output = network.run(x);
  const first = network.outputs.length > 1 ? output[0] : output;
  return { first, part, ms: performance.now() - start };
}

function show(source, photo) {
  const { first, part, ms } = answer(photo);
  const { width, height } = photo;
  const longer = Math.max(width, height);
  const zoom = Math.max(640 / longer, Math.min(1, 1280 / longer)); // of a small photo, for lines that are fine
  [view.width, view.height] = [Math.round(width * zoom), Math.round(height * zoom)];
  const context = view.getContext("2d");
  context.scale(zoom, zoom);
  context.drawImage(source, 0, 0, width, height);
  const what =
    options.finds === "keypoints"
      ? drawPose(context, first, part, Math.max(2, view.width / 140) / zoom)
      : listClasses(first);
  element("hint").hidden = true;
  return { ms, what };
}

function drawPose(context, maps, part, line) {
  const [, height, width] = network.outputs[0].shape;
  const found = keypoints(maps, width, height, options.heatmaps).map(({ x, y, confidence }) => ({
    x: part.left + x * part.width,
    y: part.top + y * part.height,
    confidence,
  }));
  context.lineWidth = line;
  context.lineCap = "round";
  network.edges.forEach(([a, b], i) => {
    context.strokeStyle = `hsl(${(360 * i) / network.edges.length} 90% 55%)`;
    context.globalAlpha = 0.3 + 0.7 * Math.min(found[a].confidence, found[b].confidence);
    context.beginPath();
    context.moveTo(found[a].x, found[a].y);
    context.lineTo(found[b].x, found[b].y);
    context.stroke();
  });
  context.fillStyle = "#fff";
  for (const { x, y, confidence } of found) {
    context.globalAlpha = 0.3 + 0.7 * confidence;
    context.beginPath();
    context.arc(x, y, line, 0, 2 * Math.PI);
    context.fill();
  }
  context.globalAlpha = 1;
  return `${found.length} keypoints`;
}

function listClasses(scores) {
  const best = (options.probabilities ? [...scores] : softmax(scores))
    .map((probability, i) => ({ probability, label: network.labels[i] ?? String(i) }))
    .sort((a, b) => b.probability - a.probability)
    .slice(0, 5);
  element("classes").replaceChildren(
    ...best.map(({ probability, label }) => {
      const item = document.createElement("li");
      const [name, track, bar, value] = ["span", "span", "div", "span"].map((tag) => document.createElement(tag));
      name.textContent = label;
      bar.className = "bar";
      bar.style.width = `${100 * probability}%`;
      track.append(bar);
      value.className = "value";
      value.textContent = `${(100 * probability).toFixed(1)} %`;
      item.append(name, track, value);
      return item;
    }),
  );
  return `${best[0].label}, ${(100 * best[0].probability).toFixed(0)} %`;
}

function say(text, wrong = false) {
  element("time").textContent = text;
  element("time").classList.toggle("error", wrong);
}

// What went wrong stands there alone, without the answer to another image.
function fail(text) {
  [view.width, view.height] = [640, 480];
  element("hint").hidden = false;
  element("classes").replaceChildren();
  say(text, true);
  announce(text);
}

let announced = 0; // when
function announce(text, pause = 0) {
  if (performance.now() - announced < pause) return;
  announced = performance.now();
  element("announced").textContent = text;
}

// Ends what is shown or asked for, and returns the number of what comes; of what was ended none is shown any more.
function nextTurn() {
  camera?.getTracks().forEach((track) => track.stop());
  camera = undefined;
  element("camera").textContent = "Use the camera";
  return ++turn;
}

async function showPhoto(read, name) {
  const own = nextTurn();
  if (!(await loaded)) return;
  let bitmap;
  try {
    bitmap = await decode(await read());
  } catch (error) {
    if (own === turn) fail(`${name}: this image cannot be read (${error.message})`);
    return;
  }
  try {
    if (own !== turn) return;
    const { ms, what } = show(bitmap, pixelsOf(bitmap));
    say(`${ms.toFixed(1)} ms`);
    announce(what);
  } catch (error) {
    fail(`${name}: ${error.message}`);
  } finally {
    bitmap.close();
  }
}

async function startCamera() {
  const own = nextTurn();
  const end = (text) => {
    if (own !== turn) return; // another has come since
    nextTurn();
    fail(text);
  };
  if (!(await loaded)) return;
  let stream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment", width: 640 } });
  } catch (error) {
    return end(`the camera cannot be used (${error.message}); a page from https or localhost may ask for it`);
  }
  if (own !== turn) return stream.getTracks().forEach((track) => track.stop());
  camera = stream;
  element("camera").textContent = "Stop the camera";
  stream.getTracks().forEach((track) => track.addEventListener("ended", () => end("the camera was taken away")));
  const video = document.createElement("video");
  video.muted = video.playsInline = true;
  video.srcObject = stream;
  let last = performance.now();
  let rate = 0;
  const step = () => {
    if (own !== turn) return;
    try {
      if (video.videoWidth) {
        const { ms, what } = show(video, pixelsOf(video, video.videoWidth, video.videoHeight));
        const now = performance.now();
        rate = 0.9 * rate + 0.1 * (1000 / Math.max(now - last, 1));
        last = now;
        say(`${ms.toFixed(1)} ms a frame, ${rate.toFixed(0)} frames a second`);
        announce(what, 2000);
      }
    } catch (error) {
      return end(error.message);
    }
    requestAnimationFrame(step);
  };
  try {
    await video.play();
  } catch (error) {
    return end(`the camera cannot be shown (${error.message})`);
  }
  requestAnimationFrame(step);
}

const choose = (files) => files?.[0] && showPhoto(() => files[0], files[0].name);
element("photo").addEventListener("change", ({ target }) => {
  choose([...target.files]);
  target.value = ""; // so that the same file may be chosen again
});
element("camera").addEventListener("click", () => (camera ? nextTurn() : startCamera()));
const drop = element("drop");
drop.addEventListener("dragover", (event) => (event.preventDefault(), drop.classList.add("over")));
drop.addEventListener("dragleave", () => drop.classList.remove("over"));
drop.addEventListener("drop", (event) => {
  event.preventDefault();
  drop.classList.remove("over");
  choose(event.dataTransfer.files);
});

async function load() {
  try {
    network = await Network.load(options.network);
    network.verify(); // a first run, which is slow
  } catch (error) {
    element("about").textContent = error.message;
    element("about").classList.add("error");
    for (const id of ["photo", "camera"]) element(id).disabled = true;
    return false;
  }
  const { shape } = network.input;
  const what = options.finds === "keypoints" ? `${network.labels.length} keypoints` : `${network.outputs[0].size} classes`;
  const threads = network.threads > 1 ? `, ${network.threads} threads` : "";
  element("about").textContent = `A binary network: input ${shape.join(" x ")}, ${what}; ${network.instructionSet}${threads}.`;
  return true;
}

async function fetched(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`status ${response.status}`);
  return response.blob();
}

const loaded = load(); // whether it is
const asked = new URLSearchParams(location.search).get("photo"); // index.html?photo=URL shows it at once
if (asked) showPhoto(() => fetched(asked), asked);
