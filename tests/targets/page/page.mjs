// A visit to a page, without a browser: page.mjs FOLDER VISIT writes as JSON what can be seen. A photo is a size, and
// the milliseconds after which it is decoded.
import { pathToFileURL } from "node:url";

const [folder, visit] = process.argv.slice(2);
const base = pathToFileURL(`${folder}/`);
const streams = [];

class Element {
  constructor(tag = "") {
    Object.assign(this, { tag, children: [], style: {}, textContent: "", listeners: {}, value: "" });
    this.classList = { add() {}, remove() {}, toggle() {} };
  }
  addEventListener(kind, listener) {
    this.listeners[kind] = listener;
  }
  append(...children) {
    this.children.push(...children);
  }
  replaceChildren(...children) {
    this.children = children;
  }
  getContext() {
    return new Proxy({}, { get: () => () => {}, set: () => true });
  }
  async play() {}
  get videoWidth() {
    return this.srcObject.frames++ ? 32 : 0;
  }
  videoHeight = 32;
}

class OffscreenCanvas extends Element {
  getContext() {
    const getImageData = (x, y, width, height) => ({ data: new Uint8ClampedArray(4 * width * height).fill(255) });
    return { clearRect() {}, drawImage() {}, getImageData };
  }
}

class Stream {
  constructor() {
    Object.assign(this, { live: true, frames: 0 });
    streams.push(this);
  }
  getTracks() {
    return [{ stop: () => (this.live = false), addEventListener() {} }];
  }
}

const elements = new Map();
const element = (id) => elements.get(id) ?? elements.set(id, new Element(id)).get(id);
const { readFile } = await import("node:fs/promises");
element("options").textContent = /json">(.*?)<\/script>/.exec(await readFile(new URL("index.html", base), "utf8"))[1];

const later = (ms) => new Promise((next) => setTimeout(next, ms));
let permitted;
const permission = new Promise((next) => (permitted = next));
const asked = visit === "missing" ? "?photo=none.png" : "";
Object.assign(globalThis, {
  document: { baseURI: base.href, getElementById: element, createElement: (tag) => new Element(tag) },
  location: { search: asked, protocol: "https:" },
  createImageBitmap: async ({ size, ms }) => (await later(ms), { width: size, height: size, close: () => (closed += 1) }),
  requestAnimationFrame: (step) => setTimeout(step, 1),
  fetch: async () => ({ ok: false, status: 404 }),
  OffscreenCanvas,
});
let closed = 0;
const getUserMedia = async () => (await permission, new Stream());
Object.defineProperty(globalThis, "navigator", { value: { mediaDevices: { getUserMedia } } });

const choose = (name, size, ms) =>
  element("photo").listeners.change({ target: { files: [{ name, size, ms }], value: name } });
const click = () => element("camera").listeners.click();
const until = async (happened) => {
  while (!happened()) await later(5);
};
const ready = () => until(() => !["", "Loading"].includes(element("about").textContent));
const shown = () => until(() => /ms|read/.test(element("time").textContent));

const visits = {
  async early() {
    choose("early.png", 20, 0);
  },
  async drops() {
    await ready();
    choose("slow.png", 400, 100);
    choose("quick.png", 200, 0);
    await later(200);
  },
  async unreadable() {
    await ready();
    choose("good.png", 200, 0);
    await shown();
    element("time").textContent = "";
    globalThis.createImageBitmap = async () => {
      throw new Error("no image");
    };
    choose("bad.png", 200, 0);
  },
  async missing() {
    await ready();
  },
  async camera() {
    await ready();
    click();
    click();
    permitted();
    await until(() => streams.length === 2);
  },
  async replaced() {
    await ready();
    click();
    choose("photo.png", 200, 0);
    await shown();
    permitted();
    await until(() => streams.length === 1);
    await later(50);
  },
};

await import(new URL("page.js", base));
await visits[visit]();
await shown();
const { textContent, disabled = false } = element("camera");
const classes = element("classes").children.length;
const view = element("view").width;
const live = streams.map((stream) => stream.live);
const said = element("announced").textContent;
console.log(JSON.stringify({ time: element("time").textContent, camera: textContent, disabled, classes, view, live, closed, said }));
process.exit();
