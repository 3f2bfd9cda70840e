"""The conversations that the load generator sends, written for it.

Choosing among them is in lab/prompts.py. Tool output stands as plain text inside user turns, so that every chat
template takes it, and no tools are declared: a grammar would bind the answer and change what speculation is worth.
"""

Turn = tuple[str, str]
Conversation = tuple[Turn, ...]

_ENGINEER = """You are a senior software engineer working in a repository through an editor. Answer with complete code
first, then at most three sentences of reasons. Keep the names and the style of the code you are shown."""

_AGENT = """You are a coding agent. You work in steps: say in one line what you learned, then give the next action as
a JSON object with the keys `tool` and `arguments`. Tools: read_file(path), write_file(path, text), run(command),
search(pattern, path), finish(summary). Never invent the output of a tool."""


def _turns(script: str, system: str | None = None) -> Conversation:
    """Pairs of role and text out of a script in which `=== ROLE` alone on a line opens a turn."""
    spoken = [turn.partition("\n") for turn in script.removeprefix("=== ").split("\n=== ")]
    opening = [] if system is None else [("system", system)]
    return tuple(opening + [(role, text) for role, _, text in spoken])


_CODING = (
    """=== user
Here is our token bucket:

```python
class Bucket:
    def __init__(self, rate, burst):
        self.rate = rate
        self.burst = burst
        self.level = burst
        self.last = 0.0

    def take(self, now):
        self.level += (now - self.last) * self.rate
        self.last = now
        if self.level >= 1:
            self.level -= 1
            return True
        return False
```

After a quiet night it lets thousands of calls through at once. Mend it and add type annotations.""",
    """=== user
Write a Python function `merge(intervals)` that joins overlapping closed intervals given as tuples.
=== assistant
```python
def merge(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged = []
    for low, high in sorted(intervals):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged
```
Sorting by the lower end means that only the last interval kept can overlap the next one.
=== user
Good. Now the intervals come as an endless stream, sorted by lower end, and I want to yield each joined
interval as soon as it can no longer grow. Then write pytest cases: empty, touching, nested, one element.""",
    """=== user
This SQL takes forty seconds on 30 million rows:

```sql
SELECT c.id, c.name, (SELECT MAX(o.placed_at) FROM orders o WHERE o.customer_id = c.id) AS last_order,
  (SELECT COUNT(*) FROM orders o WHERE o.customer_id = c.id AND o.state = 'paid') AS paid
FROM customers c
WHERE c.region = 'north'
ORDER BY last_order DESC NULLS LAST
LIMIT 50;
```

Plan: Seq Scan on customers (rows=410233), SubPlan 1 -> Index Scan using orders_customer (loops=410233),
SubPlan 2 -> Index Scan using orders_customer (loops=410233).
Rewrite it for PostgreSQL and say which index you would add.""",
    """=== user
Translate this Go function into idiomatic Rust with `thiserror`, without unwrap:

```go
func Load(path string) (*Settings, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	defer f.Close()
	var s Settings
	if err := json.NewDecoder(f).Decode(&s); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	if s.Port == 0 {
		s.Port = 8080
	}
	return &s, nil
}
```""",
    """=== user
A React component of ours renders a table of 5000 rows and typing in its filter box lags:

```tsx
export function Orders({ orders }: { orders: Order[] }) {
  const [text, setText] = useState('');
  const shown = orders.filter(o => JSON.stringify(o).toLowerCase().includes(text.toLowerCase()));
  return (
    <>
      <input value={text} onChange={e => setText(e.target.value)} />
      <table><tbody>
        {shown.map((o, i) => <Row key={i} order={o} onOpen={() => open(o.id)} />)}
      </tbody></table>
    </>
  );
}
```

Make it smooth without a new dependency.
=== assistant
Three things cost time: every keystroke serialises each order, `key={i}` makes React rebuild rows when the
filter moves them, and `onOpen` is a new function for every row, so `Row` can never skip a render. I would
build the searchable text once, defer the filter, and memoise the row.
=== user
Yes. Show the whole file, with the memoised Row and a test with Testing Library for the filter.""",
    """=== user
Write a C function that parses an unsigned decimal out of a buffer that is not NUL-terminated:
`int parse_u32(const char *at, size_t length, uint32_t *out)`. It returns the number of bytes consumed, 0
when there is no digit, -1 on overflow, and it must not read past the buffer. Then list the inputs that a
fuzzer should find first.""",
    """=== user
Our asyncio worker loses jobs on shutdown:

```python
async def worker(queue, store):
    while True:
        job = await queue.get()
        try:
            result = await job.run()
            await store.save(job.id, result)
        except Exception:
            log.exception('job failed')

async def main():
    tasks = [asyncio.create_task(worker(queue, store)) for _ in range(8)]
    await stop.wait()
    for task in tasks:
        task.cancel()
```

A job that was taken must be finished or put back; new jobs must not start after `stop`; shutdown may take
20 seconds at the most.""",
    """=== user
Review this patch as you would in a pull request:

```diff
--- a/cache.py
+++ b/cache.py
@@ -11,9 +11,14 @@ class Cache:
     def get(self, key):
-        entry = self._entries.get(key)
-        if entry is None:
-            return None
+        with self._lock:
+            entry = self._entries.get(key)
+        if not entry:
+            value = self._load(key)
+            self._entries[key] = (value, time.time() + self._ttl)
+            return value
         value, expires_at = entry
-        if expires_at < now:
+        if expires_at < time.time():
             del self._entries[key]
             return None
         return value
```
=== assistant
Blocking: the write happens outside the lock, so two callers load the same key twice and the older value may
win. Blocking: `del` can raise KeyError when two callers find the same expired entry. Minor: the wall clock
may step; use a monotonic one.
=== user
Agreed. Write the corrected class: one load per key even under contention, expiry, and a size limit.""",
)

_AGENTIC = (
    """=== user
The test `test_total_includes_tax` fails since yesterday. Find out why and mend it.
=== assistant
{"tool": "run", "arguments": {"command": "pytest -x tests/test_invoice.py"}}
=== user
Output of run:
FAILED tests/test_invoice.py::test_total_includes_tax
>       assert invoice.total() == Decimal('119.00')
E       AssertionError: assert Decimal('118.9999999999999999') == Decimal('119.00')

tests/test_invoice.py:31: AssertionError
1 failed, 12 passed in 0.41s
=== assistant
{"tool": "search", "arguments": {"pattern": "def total", "path": "billing"}}
=== user
Output of search:
billing/invoice.py:44:    def total(self) -> Decimal:
billing/invoice.py-45-        net = sum((line.net for line in self.lines), Decimal(0))
billing/invoice.py-46-        return net * Decimal(1 + float(self.tax_rate))
billing/report.py:18:def total(rows):
billing/report.py-19-    return sum(row.amount for row in rows)""",
    """=== user
Task: add a `--dry-run` flag to our deploy command; it prints each step and changes nothing.

Tree:
deploy/
  __main__.py   (argparse, calls steps.run_all)
  steps.py      (list of step functions: build, push, migrate, switch, verify)
  shell.py      (run(command) -> CompletedProcess)
tests/
  test_steps.py

Content of deploy/steps.py:

```python
def push(settings):
    shell.run(f'docker push {settings.image}')

def migrate(settings):
    shell.run(f'kubectl exec deploy/{settings.name} -- migrate')
    settings.audit.write('migrated')

def run_all(settings):
    for step in (build, push, migrate, switch, verify):
        step(settings)
```""",
    """=== user
Memory of the `ingest` service grows by 300 MB an hour. Here is what I have; what do you do next?
=== assistant
{"tool": "run", "arguments": {"command": "python -m scripts.heap --top 5 --pid 4121"}}
=== user
Output of run:
 count      bytes  type
 91233  88120400  dict
 90817  43592160  ingest.model.Event
 90802   5811328  asyncio.Future
 90790  13073760  coroutine
   31     71424  aiohttp.ClientResponse
=== assistant
{"tool": "search", "arguments": {"pattern": "Future|create_task|gather", "path": "ingest"}}
=== user
Output of search:
ingest/forward.py:27:        done = loop.create_future()
ingest/forward.py:28:        self._waiting[event.id] = done
ingest/forward.py:29:        await self._queue.put(event)
ingest/forward.py:30:        return await done
ingest/forward.py:61:            done = self._waiting.get(event.id)
ingest/forward.py:62:            if done and not done.done():
ingest/forward.py:63:                done.set_result(status)""",
    """=== user
Upgrade the project from pydantic 1 to 2. Start with what breaks.

Output of run (pytest -q | tail -8):
E   pydantic.errors.PydanticUserError: `regex` is removed. use `pattern` instead
E   pydantic.errors.PydanticUserError: If you use `@root_validator` with pre=False you MUST specify
    `skip_on_failure=True`
E   ImportError: cannot import name 'BaseSettings' from 'pydantic'
3 errors during collection

Content of app/settings.py:

```python
from pydantic import BaseSettings, Field, root_validator

class Settings(BaseSettings):
    name: str = Field(regex='^[a-z-]+$')
    port: int = 8080
    tls_cert: str | None
    tls_key: str | None

    @root_validator
    def both_or_neither(cls, values):
        if bool(values.get('tls_cert')) != bool(values.get('tls_key')):
            raise ValueError('give both or neither')
        return values
```""",
    """=== user
CI went from 6 to 19 minutes last week. Find the change and propose a remedy.
=== assistant
{"tool": "run", "arguments": {"command": "git log --since=9.days --oneline -- .ci tests"}}
=== user
Output of run:
8c1f0aa tests: cover the importer with real archives
51b77d2 ci: cache wheels by lock file
e09a4c4 tests: session fixture becomes function fixture
77d0be1 ci: run on two runners
=== assistant
{"tool": "run", "arguments": {"command": "pytest --durations=5 -q tests | tail -6"}}
=== user
Output of run:
41.20s setup    tests/test_api.py::test_list_is_paged
40.87s setup    tests/test_api.py::test_unknown_id_is_404
40.11s setup    tests/test_api.py::test_filter_by_owner
6.02s call     tests/test_importer.py::test_large_archive
0.80s call     tests/test_auth.py::test_token_expires""",
    """=== user
Write a parser for our log lines into a frozen dataclass, with tests, then run them. Sample:

2031-04-02T10:11:12.131Z api-7 INFO  request_settled route=/v1/orders status=200 duration_s=0.031
2031-04-02T10:11:12.140Z api-7 WARN  retry_spent route=/v1/orders attempt=2 cause="connection reset"
2031-04-02T10:11:12.201Z api-3 ERROR upstream_failed route=/v1/pay status=502 body_bytes=0

Fields after the event name are key=value, values may be quoted and may contain escaped quotes.
=== assistant
{"tool": "search", "arguments": {"pattern": "dataclass", "path": "logtools"}}
=== user
Output of search:
logtools/model.py:3:from dataclasses import dataclass
logtools/model.py:7:@dataclass(frozen=True, slots=True)
logtools/model.py:8:class Span:
logtools/model.py:9:    started_at_s: float
logtools/model.py:10:    ended_at_s: float""",
    """=== user
Resolve this merge conflict in client/retry.py; both behaviours must survive.

Ours:

```python
def delay_s(attempt: int, answer: Answer | None) -> float:
    if answer is not None and answer.retry_after_s is not None:
        return min(answer.retry_after_s, MAX_DELAY_S)
    return min(BASE_S * 2**attempt, MAX_DELAY_S)
```

Theirs:

```python
def delay_s(attempt: int, answer: Answer | None) -> float:
    spread = random.uniform(0.5, 1.5)
    return min(BASE_S * 2**attempt * spread, MAX_DELAY_S)
```

Content of tests/test_retry.py:

```python
def test_retry_after_wins_over_the_formula():
    assert delay_s(1, Answer(retry_after_s=3.0)) == 3.0

def test_delays_are_spread():
    assert len({delay_s(2, None) for _ in range(50)}) > 10
```""",
    """=== user
Requests to /export time out for big accounts. Make it stream and keep the endpoint's contract.
=== assistant
{"tool": "read_file", "arguments": {"path": "web/export.py"}}
=== user
Output of read_file:

```python
@routes.get('/export')
async def export(request):
    account = request['account']
    rows = await db.fetch('SELECT * FROM entries WHERE account = $1 ORDER BY id', account.id)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow([row[name] for name in COLUMNS])
    return web.Response(text=text.getvalue(), content_type='text/csv', headers=ATTACHMENT)
```
=== assistant
{"tool": "search", "arguments": {"pattern": "/export", "path": "tests"}}
=== user
Output of search:
tests/test_export.py:12:    answer = await client.get('/export')
tests/test_export.py:13:    assert answer.headers['content-type'] == 'text/csv; charset=utf-8'
tests/test_export.py:14:    assert (await answer.text()).splitlines()[0] == 'id,booked_on,amount'""",
)

# Draft models are trained mostly on instructions and code; free prose in an unusual voice is accepted less often.
_PROSE = (
    """=== user
Write the opening of a novel told by a lighthouse that has begun to forget ships. No dialogue, long
sentences.""",
    """=== user
Write a letter from a retired bell-founder to the apprentice who left him for a city orchestra. He is proud
and will not say so. Use the words of the trade.""",
    """=== user
Describe the smell of a library after a flood to somebody who has never been indoors.
=== assistant
First think of rain on warm stone, and then of bread that was left too long in a cellar.
=== user
Go on, slower, and let the memory of one particular reader come in without naming her.""",
    """=== user
Invent a folk tale of the marsh country in which a heron and a tax collector trade shadows. Tell it in the
manner of an old woman who keeps interrupting herself.""",
    """=== user
Write a sermon for an empty church in winter, in which the preacher slowly grasps that he is talking to the
stove. Grave, tender, not ironic.""",
    """=== user
Write twelve unrhymed lines on the last tram of the night as seen by its wheels, then say in a paragraph
which line you would strike and why.""",
)

CODING = tuple(_turns(script, _ENGINEER) for script in _CODING)
AGENTIC = tuple(_turns(script, _AGENT) for script in _AGENTIC)
PROSE = tuple(_turns(script) for script in _PROSE)
