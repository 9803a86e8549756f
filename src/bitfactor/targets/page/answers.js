// What a network's output means.

/** The probabilities that scores stand for. */
export function softmax(scores) {
  const most = scores.reduce((a, b) => Math.max(a, b));
  const powers = Array.from(scores, (x) => Math.exp(x - most));
  const total = powers.reduce((a, b) => a + b);
  return powers.map((x) => x / total);
}

/** The softmax of scores, unless they are probabilities already. */
export function probabilities(scores) {
  const sum = scores.reduce((a, b) => a + b, 0);
  return scores.every((x) => x >= 0) && Math.abs(sum - 1) < 1e-3 ? [...scores] : softmax(scores);
}

/**
 * The keypoints of maps (keypoints, height, width): x and y as fractions of what the network saw, and a
 * confidence of 0 to 1. As `bitfactor.pose.decode` finds them: the highest cell and a quarter towards its higher
 * neighbour, or of maps that are a softmax's argument the mean of 5 x 5 cells around it.
 */
export function keypoints(maps, width, height, scale = "linear") {
  return Array.from({ length: maps.length / (width * height) }, (_, k) => {
    const map = maps.subarray(k * width * height, (k + 1) * width * height);
    const at = map.reduce((best, value, i) => (value > map[best] ? i : best), 0);
    const found = (scale === "softmax" ? mean : quarter)(map, width, height, at % width, Math.floor(at / width));
    const sure = { linear: map[at], logits: 1 / (1 + Math.exp(-map[at])), softmax: found.fraction }[scale];
    const confidence = Math.min(1, Math.max(0, sure));
    return { x: (found.x + 0.5) / width, y: (found.y + 0.5) / height, confidence };
  });
}

function quarter(map, width, height, x, y) {
  const towards = (at, n, cell) => (at > 0 && at < n - 1 ? 0.25 * Math.sign(cell(at + 1) - cell(at - 1)) : 0);
  return {
    x: x + towards(x, width, (i) => map[y * width + i]),
    y: y + towards(y, height, (i) => map[i * width + x]),
  };
}

function mean(map, width, height, x, y) {
  const most = map[y * width + x];
  const sum = { all: 0, near: 0, x: 0, y: 0 };
  map.forEach((value, i) => {
    const [row, column] = [Math.floor(i / width), i % width];
    const power = Math.exp(value - most);
    sum.all += power;
    if (Math.abs(row - y) > 2 || Math.abs(column - x) > 2) return;
    sum.near += power;
    sum.x += power * column;
    sum.y += power * row;
  });
  return { x: sum.x / sum.near, y: sum.y / sum.near, fraction: sum.near / sum.all };
}
