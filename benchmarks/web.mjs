// Times networks in WebAssembly: web.mjs PACKAGE MODULES RUNS THREADS GROUP ... writes JSON.
// GROUP is names of files with commas between, which take turns: .bfp of ours, .onnx, .tflite,
// and .json of TensorFlow.js.
import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { runInThisContext } from "node:vm";

const [packageFolder, modules, runs, count, ...groups] = process.argv.slice(2);
const threads = Number(count);
const readers = { bfp: ofBitfactor, onnx: ofOnnxRuntime, json: ofTensorFlow, tflite: ofLiteRt };
const wave = (size) => new Float32Array(size).map((_, i) => Math.sin(i));

async function ofBitfactor(file) {
  const { Network, hasRelaxedSimd } = await import(pathToFileURL(`${packageFolder}/bitfactor.js`));
  const ours = {};
  for (const relaxed of hasRelaxedSimd() ? [true, false] : [false]) {
    const network = await Network.load(pathToFileURL(file), { relaxed, threads });
    const x = wave(network.input.size);
    ours[`bitfactor ${network.instructionSet}`] = async () => network.run(x);
  }
  return ours;
}

async function ofOnnxRuntime(file) {
  const ort = await import(pathToFileURL(`${modules}/onnxruntime-web/dist/ort.node.min.mjs`));
  ort.env.wasm.numThreads = threads;
  const session = await ort.InferenceSession.create(await readFile(file), { executionProviders: ["wasm"] });
  const [name] = session.inputNames;
  const shape = session.inputMetadata[0].shape;
  const x = new ort.Tensor("float32", wave(shape.reduce((a, b) => a * b)), shape);
  const dtype = file.endsWith("-int8.onnx") ? "int8" : "float32";
  return { [`onnxruntime-web ${dtype}`]: async () => session.run({ [name]: x }) };
}

// The steps of a network with weights drawn anew, in the fused operations that TensorFlow.js' converter makes.
async function ofTensorFlow(file) {
  const tf = await tensorFlow();
  const { input, output, steps } = JSON.parse(await readFile(file));
  const calls = steps.map((step) => CALLS[step.op](tf, step));
  const x = tf.tensor(wave(input.shape.reduce((a, b) => a * b)), input.shape);
  const run = () => {
    const values = { [input.name]: x };
    steps.forEach((step, i) => (values[step.output] = calls[i](...step.inputs.map((name) => values[name]))));
    return values[output];
  };
  return {
    "TensorFlow.js float32": async () => {
      const y = tf.tidy(run);
      await y.data();
      y.dispose();
    },
  };
}

async function tensorFlow() {
  const need = createRequire(resolve(modules, "tfjs.js"));
  const tf = need("@tensorflow/tfjs-core");
  const wasm = need("@tensorflow/tfjs-backend-wasm");
  wasm.setThreadsCount(threads);
  wasm.setWasmPaths(`${resolve(modules)}/@tensorflow/tfjs-backend-wasm/dist/`);
  await tf.setBackend("wasm");
  return tf;
}

// Its loader knows browsers alone: a worker's importScripts stands for reading the file.
async function liteRt() {
  if (globalThis.importScripts === undefined) {
    const folder = resolve(modules, "@litertjs/core/wasm");
    const beside = { self: globalThis, require: createRequire(import.meta.url), __dirname: folder };
    Object.assign(globalThis, beside, { __filename: `${folder}/index.js`, console: { ...console, info() {} } });
    globalThis.importScripts = (url) => runInThisContext(readFileSync(url, "utf8"), { filename: url });
    const lite = await import(pathToFileURL(resolve(modules, "@litertjs/core/dist/index.js")));
    await lite.loadLiteRt(`${folder}/litert_wasm_internal.js`);
    liteRt.module = lite;
  }
  return liteRt.module;
}

async function ofLiteRt(file) {
  const lite = await liteRt();
  const model = await lite.loadAndCompile(new Uint8Array(await readFile(file)), { accelerator: "wasm" });
  const shape = [...model.getInputDetails()[0].shape];
  const x = new lite.Tensor(wave(shape.reduce((a, b) => a * b)), shape);
  const dtype = file.endsWith("-int8.tflite") ? "int8" : "float32";
  return {
    [`LiteRT.js ${dtype}`]: async () => {
      const [y] = await model.run(x);
      await y.data();
      y.delete();
    },
  };
}

const CALLS = {
  conv(tf, { shape, strides, pads, depthwise, activation }) {
    const filter = tf.randomNormal(shape, 0, 1 / Math.sqrt(shape[0] * shape[1] * (depthwise ? 1 : shape[2])));
    const bias = tf.zeros([depthwise ? shape[2] : shape[3]]);
    const same = { filter, strides, pad: "valid", bias, activation };
    const call = depthwise ? tf.fused.depthwiseConv2d : tf.fused.conv2d;
    const padded = pads.flat().some((width) => width);
    return (x) => call({ ...same, x: padded ? tf.pad(x, pads) : x });
  },
  linear(tf, { shape }) {
    const weight = tf.randomNormal(shape), bias = tf.zeros([shape[1]]);
    return (x) => tf.fused.matMul({ a: tf.reshape(x, [1, -1]), b: weight, bias });
  },
  add: (tf) => tf.add,
  multiply: (tf) => tf.mul,
  relu: (tf) => tf.relu,
  relu6: (tf) => tf.relu6,
  mean: (tf) => (x) => tf.mean(x, [1, 2], true),
  max_pool: (tf) => (x) => tf.maxPool(tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]], -1e9), 3, 2, "valid"),
  same: () => (x) => x,
  hard_sigmoid: (tf) => (x) => tf.mul(tf.relu6(tf.add(x, 3)), 1 / 6),
  hard_swish: (tf) => (x) => tf.mul(x, tf.mul(tf.relu6(tf.add(x, 3)), 1 / 6)),
};

const threaded = threads > 1 ? `, ${threads} threads` : "";
const found = [];
for (const group of groups) {
  const all = [];
  for (const file of group.split(",")) {
    const engines = await readers[file.split(".").pop()](file);
    all.push(...Object.entries(engines).map(([name, call]) => ({ file, name, call, times: [] })));
  }
  for (let run = -2; run < Number(runs); run++) {
    for (const { call, times } of all) {
      await new Promise((after) => setTimeout(after, threads > 1 ? 30 : 0)); // the threads of others fall asleep
      await call();
      const start = performance.now();
      await call();
      if (run >= 0) times.push(performance.now() - start);
    }
  }
  found.push(all.map(({ file, name, times }) => {
    const ms = times.sort((a, b) => a - b);
    return { file, name: name + threaded, minimum_ms: ms[0], median_ms: ms[ms.length >> 1] };
  }));
}
console.log(JSON.stringify(found));
process.exit(0); // the other engine's threads would go on
