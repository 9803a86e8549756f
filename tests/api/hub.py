"""A stand-in for the Hugging Face Hub: it takes commits, and serves files at each commit's hash."""

import base64
import hashlib
import json
import re
from http.server import BaseHTTPRequestHandler


class Hub(BaseHTTPRequestHandler):
    """`commits` are (hash, {file: content}), the last one is main; each test makes a class of its own."""

    commits: list

    def log_message(self, *_):
        pass

    def do_POST(self):
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size)
        if self.path == "/api/repos/create":
            self.answer(json.dumps({"url": f"http://{self.headers['Host']}/owner/digits"}).encode())
        elif "/preupload/" in self.path:
            files = json.loads(body)["files"]
            found = [{"path": one["path"], "uploadMode": "regular", "shouldIgnore": False} for one in files]
            self.answer(json.dumps({"files": found}).encode())
        elif "/commit/" in self.path:
            lines = [json.loads(line) for line in body.splitlines()]
            files = [line["value"] for line in lines if line["key"] == "file"]
            content = {one["path"]: base64.b64decode(one["content"]) for one in files}
            sha = hashlib.sha1(body).hexdigest()
            self.commits.append((sha, content))
            url = f"http://{self.headers['Host']}/owner/digits/commit/{sha}"
            self.answer(json.dumps({"commitUrl": url, "commitOid": sha}).encode())
        else:
            self.answer(b"{}")

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        found = re.fullmatch(r"/owner/digits/resolve/([\w.-]+)/(.+)", self.path)
        commits = [one for one in self.commits if found and one[0].startswith(found[1].replace("main", ""))]
        if not commits or found[2] not in commits[-1][1]:
            code = "EntryNotFound" if commits else "RepoNotFound"
            self.answer(b"", 404, {"X-Error-Code": code})
            return
        sha, files = commits[-1]
        content = files[found[2]]
        self.answer(content, 200, {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": sha})

    def answer(self, content, status=200, headers=()):
        self.send_response(status)
        for name, value in {**dict(headers), "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
