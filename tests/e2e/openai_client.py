"""Routes real prompts through `bear serve` over three simulated engines, with OpenAI's Python client.

Checks that everything comes back, that bodies reach the engine byte for byte outside the named edits, that
the small model's share rises with load, and that 200 aborted requests leave every ledger at zero.
"""

import asyncio
import base64
import collections
import gzip
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import httpx
import openai

from recorder import Recorder

MODELS = {
    "qwen3-0.6b": dict(profile="qwen3-0.6b-h100", parameters_b=0.6, price=(0.044, 0.173)),
    "qwen3-8b": dict(profile="qwen3-8b-h100", parameters_b=8.2, price=(0.072, 0.287)),
    "qwen3-32b": dict(profile="qwen3-32b-2xh100", parameters_b=32.8, price=(0.287, 0.640)),
}
IMAGE_MODEL = "qwen3-32b"
PIXEL = base64.b64encode(bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
    "0000000c49444154789c63f8cfc0000003010100c9fe92ef0000000049454e44ae426082")).decode()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(url, seconds=30):
    deadline = time.time() + seconds
    while time.time() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                return answer.read()
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(f"{url} did not come up in {seconds} s")


def prompts(data):
    """Returns (task, prompt) pairs: all of every file under prompts/."""
    found = []
    for file in sorted(pathlib.Path(data, "prompts").glob("*.jsonl.gz")):
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        found += [(row["task"], row["prompt"]) for row in rows]
    return found


class Pool:
    """Three engines, a recorder in front of each, and `bear serve` over the recorders."""

    def __init__(self, bear, folder):
        self.bear, self.folder = bear, pathlib.Path(folder)
        self.processes, self.engines, self.recorders = [], {}, {}

    def open(self):
        """Starts engines, recorders and router, and waits until the router is ready."""
        instances = []
        for seed, (model, facts) in enumerate(MODELS.items()):
            port = free_port()
            self.start([self.bear, "engine", "--profile", facts["profile"], "--port", str(port), "--seed", str(seed)],
                       f"{model}.log")
            wait_for(f"http://127.0.0.1:{port}/health")
            self.engines[model] = port
            self.recorders[model] = Recorder(port)
            fit = next(pathlib.Path("config/engines").glob(f"{facts['profile']}.fit.yaml")).read_text()
            instances.append((model, port, self.recorders[model].port, fit))
        self.port, admin = free_port(), free_port()
        config = self.folder / "bear.yaml"
        config.write_text(self.config(instances, admin))
        self.start([self.bear, "serve", "--config", str(config)], "serve.log")
        wait_for(f"{self.url}/ready")
        time.sleep(0.5)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self, command, log):
        out = open(self.folder / log, "wb")
        self.processes.append(subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT))

    def config(self, instances, admin):
        text = [f"listen: {{address: 127.0.0.1:{self.port}, admin: 127.0.0.1:{admin}}}",
                "routing: {policy: {name: bear}, lambda_per_usd: 500.0}",
                "predictors: {bundle: models/demo, allow_synthetic: true}",
                f"store: {{url: 'sqlite://{self.folder}/bear.db'}}", "models:"]
        for model, facts in MODELS.items():
            kinds = "[text, image]" if model == IMAGE_MODEL else "[text]"
            text.append(f"  - {{id: {model}, parameters_b: {facts['parameters_b']}, max_model_len: 40960, "
                        f"price: {{input_usd_per_mtok: {facts['price'][0]}, output_usd_per_mtok: {facts['price'][1]}}}, "
                        f"tokenizer: {{engine: true}}, capabilities: {{modalities: {kinds}}}}}")
        text.append("instances:")
        for model, engine, recorder, fit in instances:
            keep, kept = [], False
            for line in fit.splitlines():
                if not line.startswith((" ", "#")):
                    kept = bool(re.match(r"(batch_time|overhead|effective_prefill|peak_prefill)", line))
                keep += [line] * kept
            text.append(f"  - id: {model}-0\n    model: {model}\n    url: 'http://127.0.0.1:{recorder}'\n"
                        f"    snapshots: {{source: http, address: 'http://127.0.0.1:{engine}/bear/snapshot', period_ms: 20}}")
            text += ["    " + line for line in keep]
        return "\n".join(text) + "\n"

    def residents(self):
        """Returns how many requests the engines themselves still hold."""
        snapshots = (json.loads(urllib.request.urlopen(f"http://127.0.0.1:{port}/bear/snapshot", timeout=5).read())
                     for port in self.engines.values())
        return sum(len(snapshot["running"]) + len(snapshot["waiting"]) for snapshot in snapshots)

    def metric(self, name):
        page = urllib.request.urlopen(f"{self.url}/metrics", timeout=5).read().decode()
        return [float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name + "{")]

    def stop(self):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGINT)
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                raise SystemExit(f"{process.args[1]} did not end on SIGINT within 10 s")


class Sent:
    """Keeps the exact bytes the client sent, by x-request-id."""

    def __init__(self):
        self.bodies = {}

    async def hook(self, request):
        self.bodies[request.headers["x-request-id"]] = request.content


def check_body(pool, sent, received):
    """Fails unless some recorded body equals `sent` with `model` rewritten and include_usage injected."""
    for model in MODELS:
        expected = sent.replace(b'"model":"auto"', b'"model":"%s"' % model.encode(), 1)
        for body in received:
            if body == expected:
                return
            extra = len(body) - len(expected)
            if extra > 0 and b'"stream":true' in sent:
                cut = next((i for i, (a, b) in enumerate(zip(body, expected)) if a != b), len(expected))
                for at in range(max(0, cut - extra), cut + 1):
                    middle = body[at:at + extra]
                    if body[:at] + body[at + extra:] == expected and b'"include_usage"' in middle:
                        return
    raise SystemExit(f"no upstream received these bytes: {sent[:300]!r}…")


async def everything_comes_back(pool, client, sent, data):
    cases = []
    for index, (task, prompt) in enumerate(prompts(data)):
        body = dict(model="auto", messages=[{"role": "user", "content": prompt}], max_tokens=24, stream=index % 2 == 0)
        if index % 5 == 0:
            body["tools"] = [{"type": "function", "function": {"name": "look_up", "parameters": {
                "type": "object", "properties": {"näme": {"type": "string"}}}}}]
        if index % 7 == 0:
            body["extra_body"] = {"top_k": 20, "chat_template_kwargs": {"enable_thinking": False}, "x_unknown": [1.0, "ü"]}
        if index % 6 == 0 and body["stream"]:
            body["stream_options"] = {"include_usage": True}
        cases.append((f"case-{index}", task, body))
    gate = asyncio.Semaphore(8)

    async def one(name, body):
        async with gate:
            headers = {"x-request-id": name, "x-slo-ttft-ms": "2000"}
            answer = await client.chat.completions.with_raw_response.create(extra_headers=headers, **body)
            assert answer.headers["x-request-id"] == name, answer.headers
            assert answer.headers["x-bear-model"] in MODELS
            parsed = answer.parse()
            if not body["stream"]:
                assert parsed.choices[0].message.content and parsed.usage.completion_tokens > 0
                return answer.headers
            words, usage = "", None
            async for chunk in parsed:
                if not chunk.choices:
                    usage = chunk.usage
                elif chunk.choices[0].delta.content:
                    words += chunk.choices[0].delta.content
            assert words, f"{name}: an empty stream"
            assert (usage is not None) == ("stream_options" in body), f"{name}: usage chunk {usage}"
            return answer.headers

    heads = await asyncio.gather(*(one(name, body) for name, _, body in cases))
    received = [body for recorder in pool.recorders.values() for _, body in recorder.received]
    for name, _, _ in cases:
        check_body(pool, sent.bodies[name], received)
    shares = collections.Counter(head["x-bear-model"] for head in heads)
    print(f"{len(cases)} real prompts came back, each byte for byte upstream; models {dict(shares)}")


async def images(client):
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, picture]}]
    answer = await client.chat.completions.with_raw_response.create(
        model="auto", messages=messages, max_tokens=8, extra_headers={"x-request-id": "image"})
    assert answer.headers["x-bear-model"] == IMAGE_MODEL, answer.headers
    try:
        await client.chat.completions.create(model="qwen3-8b", messages=messages, max_tokens=8,
                                             extra_headers={"x-request-id": "no-image"})
    except openai.BadRequestError as refusal:
        print(f"an image goes to {IMAGE_MODEL}; pinned to qwen3-8b it is a 400: {refusal.body}")
    else:
        raise SystemExit("an image was sent to a model that takes none")


async def rising_load(client, seconds=20):
    """Loads the engines with prompts rather than answers, which this client's one process could not read."""
    rng = random.Random(7)
    words = "harbour letter window river stone garden bridge winter market lantern".split()
    rows = []
    for rate in (1, 6, 12, 20):
        heads, tasks = [], []

        async def one(name, prompt):
            stream = await client.chat.completions.with_raw_response.create(
                model="auto", messages=[{"role": "user", "content": prompt}], stream=True, max_tokens=40,
                extra_headers={"x-request-id": name, "x-slo-ttft-ms": "180"}, extra_body={"ignore_eos": True})
            heads.append(stream.headers)
            async for _ in stream.parse():
                pass

        end = time.monotonic() + seconds
        while time.monotonic() < end:
            length = rng.choice([300, 1200, 2500])
            prompt = "Summarize this report. " + " ".join(rng.choices(words, k=length))
            tasks.append(asyncio.create_task(one(f"load-{rate}-{len(tasks)}", prompt)))
            await asyncio.sleep(rng.expovariate(rate))
        await asyncio.gather(*tasks)
        models = collections.Counter(head["x-bear-model"] for head in heads)
        reasons = collections.Counter(head["x-bear-reason"] for head in heads)
        small = models["qwen3-0.6b"] / len(heads)
        rows.append(small)
        print(f"{len(heads) / seconds:>5.1f} requests/s: small model {small:.0%}; models {dict(models)}; reasons {dict(reasons)}")
    assert rows[-1] > rows[0] + 0.1, f"the small model's share did not rise with load: {rows}"


async def aborts(pool):
    """Hangs up 100 requests before the answer's headers and 100 in mid-stream."""
    body = json.dumps({"model": "auto", "stream": True, "max_tokens": 500, "ignore_eos": True,
                       "messages": [{"role": "user", "content": "Tell a long story. " + "word " * 3000}]}).encode()
    request = (b"POST /v1/chat/completions HTTP/1.1\r\nhost: bear\r\ncontent-type: application/json\r\n"
               b"content-length: %d\r\n\r\n" % len(body)) + body
    seen = collections.Counter()

    async def one(index):
        reader, writer = await asyncio.open_connection("127.0.0.1", pool.port)
        writer.write(request)
        await writer.drain()
        if index % 2:
            got = await reader.readuntil(b"data: ")
            seen["mid-stream"] += got.startswith(b"HTTP/1.1 200")
            await asyncio.sleep(random.random() * 0.2)
        else:
            await asyncio.sleep(0.001 * (index % 10))
            seen["before headers"] += 1
        writer.transport.abort()

    await asyncio.gather(*(one(index) for index in range(200)))
    deadline = time.time() + 15
    while time.time() < deadline:
        left = pool.metric("bear_ledger_requests"), pool.metric("bear_ledger_prefill_tokens")
        if left[0] and left[1] and not any(left[0]) and not any(left[1]) and not pool.residents():
            print(f"200 aborted requests ({dict(seen)}): every ledger is zero and every engine empty")
            return
        await asyncio.sleep(0.2)
    raise SystemExit(f"ledgers kept requests, tokens: {left}; engines hold {pool.residents()}")


async def main(bear):
    data = os.environ["BEAR_DATA"]
    with tempfile.TemporaryDirectory() as folder:
        pool = Pool(bear, folder)
        try:
            pool.open()
            sent = Sent()
            http = httpx.AsyncClient(event_hooks={"request": [sent.hook]}, timeout=300, trust_env=False,
                                     limits=httpx.Limits(max_connections=1000))
            client = openai.AsyncOpenAI(base_url=f"{pool.url}/v1", api_key="none", http_client=http, max_retries=0)
            await everything_comes_back(pool, client, sent, data)
            await images(client)
            await rising_load(client)
            await aborts(pool)
        except BaseException:
            sys.stderr.write((pathlib.Path(folder) / "serve.log").read_text()[-4000:])
            raise
        finally:
            pool.stop()
    print("all checks passed")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
