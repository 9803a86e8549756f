// Times networks in WebAssembly, in turns: web.mjs PACKAGE ORT RUNS THREADS BFP ONNX ... writes JSON.
import { readFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";

const [packageFolder, ortFolder, runs, count, ...files] = process.argv.slice(2);
const { Network, hasRelaxedSimd } = await import(pathToFileURL(`${packageFolder}/bitfactor.js`));
const ort = await import(pathToFileURL(`${ortFolder}/dist/ort.node.min.mjs`));
const threads = Number(count);
ort.env.wasm.numThreads = threads;

async function engines(bfp, onnx) {
  const ours = {};
  for (const relaxed of hasRelaxedSimd() ? [true, false] : [false]) {
    const network = await Network.load(pathToFileURL(bfp), { relaxed, threads });
    const x = new Float32Array(network.input.size).map((_, i) => Math.sin(i));
    ours[`bitfactor ${network.instructionSet}`] = async () => network.run(x);
  }
  if (onnx === "-") return ours;
  const session = await ort.InferenceSession.create(await readFile(onnx), { executionProviders: ["wasm"] });
  const [name] = session.inputNames;
  const shape = session.inputMetadata[0].shape;
  const x = new ort.Tensor("float32", new Float32Array(shape.reduce((a, b) => a * b)).map((_, i) => Math.sin(i)), shape);
  return { ...ours, "onnxruntime-web float32": async () => session.run({ [name]: x }) };
}

const threaded = threads > 1 ? `, ${threads} threads` : "";
const found = [];
for (let i = 0; i < files.length; i += 2) {
  const all = await engines(files[i], files[i + 1]);
  const times = Object.fromEntries(Object.keys(all).map((name) => [name, []]));
  for (let run = -2; run < Number(runs); run++) {
    for (const [name, call] of Object.entries(all)) {
      await new Promise((after) => setTimeout(after, threads > 1 ? 30 : 0)); // the threads of others fall asleep
      await call();
      const start = performance.now();
      await call();
      if (run >= 0) times[name].push(performance.now() - start);
    }
  }
  const sorted = Object.entries(times).map(([name, ms]) => [name, ms.sort((a, b) => a - b)]);
  found.push(sorted.map(([name, ms]) => ({ name: name + threaded, minimum_ms: ms[0], median_ms: ms[ms.length >> 1] })));
}
console.log(JSON.stringify(found));
process.exit(0); // the other engine's threads would go on
