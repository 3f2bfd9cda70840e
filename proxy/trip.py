"""The life of one request: read, admit, assign, send, peek, commit, stream, settle.

Before commit a failed attempt is made once more on the other backend; after it never. What it asks is in asking.py,
deciding in dispatch/ and routing/, sockets in wire/, how an answer is passed on in wire/passage.py.
"""

import asyncio

from proxy.asking import asked, call_to
from proxy.dispatch import Assignment
from proxy.dispatch.holders import keep_made, require_holder
from proxy.errors import (
    BackendBroken,
    BackendBusy,
    BodiesFull,
    CrossoverError,
    FirstByteTimeout,
    QueueFull,
    QueueTimeout,
    ShuttingDown,
    Side,
    UpstreamError,
    without_frames,
)
from proxy.hearing import Hearing, Trouble, unanswered
from proxy.means import Means, Stage
from proxy.model import Decision, Dialect, Outcome, Reason, RequestFacts, Traits, Usage
from proxy.protocol.routes import Route
from proxy.routing.breaker import Event
from proxy.state.backend import Backend
from proxy.wire.attempt import BUSY, CLIENT_FAULT, FAILED, GOOD, Opened, open_answer
from proxy.wire.body import Body
from proxy.wire.connection import Call
from proxy.wire.downstream import Reply, error_reply, kept_reply, stamps_of
from proxy.wire.kept import Kept, keep
from proxy.wire.pair import Line
from proxy.wire.passage import Passage
from proxy.wire.request import Request

# What logs and metrics say where the client left before there was a status (nginx's number; never sent).
CLIENT_CLOSED_REQUEST = 499
# The code of an error and the HTTP status that the engine had given; both None where nothing failed.
WELL: tuple[str | None, int | None] = (None, None)

# Bound once, like the verdicts.
FINISHED, FAILED_BEFORE_COMMIT, SUCCESS = Outcome.FINISHED, Outcome.FAILED_BEFORE_COMMIT, Event.SUCCESS
RESPONSES = Dialect.RESPONSES
# Of a request whose body has not been read, and of one without an answer.
UNREAD, NO_USAGE = Traits(), Usage()


class Trip:
    """One request on its way."""

    __slots__ = (
        "_admitted_s", "_arrived_s", "_assignment", "_attempts", "_body", "_client_name", "_decision", "_desk",
        "_ending", "_failure", "_first_failure", "_hearing", "_id", "_kept", "_means", "_next", "_outcome", "_passage",
        "_read_s", "_request", "_route", "_sent_s", "_status", "_traits", "_unheard", "_waited_s",
    )  # fmt: skip

    def __init__(self, means: Means, request: Request, route: Route, request_id: str, name: str | None) -> None:
        self._means = means
        self._desk = means.desk
        self._request, self._route = request, route
        self._id, self._client_name = request_id, name
        self._ending = False
        self._body: Body | None = None
        self._traits = UNREAD
        self._decision: Decision | None = None
        self._assignment: Assignment | None = None
        self._next: Assignment | None = None  # its place elsewhere, until it is told to leave
        self._passage: Passage | None = None
        self._hearing = Hearing(means.desk, means.record)
        self._first_failure = WELL  # of an attempt that was moved to the other backend
        self._kept: Kept | None = None
        self._unheard, self._attempts = False, 0
        self._outcome = FAILED_BEFORE_COMMIT
        self._failure, self._status = WELL, 0
        self._arrived_s = self._desk.clock()
        self._read_s = self._admitted_s = self._sent_s = self._arrived_s
        self._waited_s = 0.0  # for room elsewhere, after a failed attempt

    async def run(self) -> Reply | None:
        """From the first byte to the last."""
        trips = self._means.trips
        trips.add(self)
        try:
            return await self._go()
        except CrossoverError as error:
            return self._refuse(without_frames(error))
        except ConnectionError:
            self._gone()
            raise
        except asyncio.CancelledError:
            # Not in a local: a task that was cancelled keeps its frames, which are not to keep it.
            if not self._ending or self._request.client.task is None:
                self._gone()
                raise
            self._request.client.task.uncancel()
            self._outcome = Outcome.SHUT_DOWN
            return self._refuse(ShuttingDown("the proxy shut down before the request was answered; try again"))
        finally:
            self._settle()
            trips.discard(self)
            self._means.on_end(self.facts())

    def end(self) -> None:
        """End the request because the proxy shuts down."""
        self._ending = True
        if self._passage is not None and self._passage.committed:
            self._passage.end(ShuttingDown("the proxy shut down before the answer was complete"))
        elif self._request.client.task is not None:
            self._request.client.task.cancel()

    @property
    def task(self) -> "asyncio.Task[None] | None":
        """See UnderWay."""
        return self._request.client.task

    @property
    def request_id(self) -> str:
        """See UnderWay."""
        return self._id

    @property
    def stage(self) -> Stage:
        """See UnderWay."""
        read_s, moved = None if self._body is None else self._read_s, self._first_failure is not WELL
        named = self._id, self._route.template, self._traits
        return Stage(*named, self._arrived_s, read_s, moved, self._assignment, self._passage)

    def facts(self) -> RequestFacts:
        """What is known of the request; complete once `run` has returned. By name it would take twice as long."""
        passage = self._passage
        usage = NO_USAGE if passage is None else passage.usage
        return RequestFacts(
            self._id,
            self._route.template,
            self._request.method,
            self._outcome,
            self._status,
            self._decision,
            self._traits,
            self._attempts,
            self._failure[0],
            self._first_failure[0],
            self._desk.clock() - self._arrived_s,
            self._admitted_s - self._read_s + self._waited_s,
            self._sent_s - self._admitted_s,
            None if passage is None else passage.ttft_s(self._arrived_s),
            None if passage is None else passage.tpot_s(usage.completion_tokens),
            usage,
            self._request.peer or None,
            self._client_name,
            self._hearing.url,
            passage is not None and passage.held_up,
            self._failure[1],
            self._first_failure[1],
        )

    # ------------------------------------------------------------ read, admit, assign

    async def _go(self) -> Reply | None:
        request = self._request
        bodies = self._means.bodies
        # Most bodies have come whole by now, as most requests find room: what need not wait is no coroutine.
        body = self._body = bodies.take(request) if request.incoming.ended else await bodies.read(request)
        self._traits = asked(request, self._route, body.content, prefixed=self._desk.rules.affine)
        self._read_s = self._admitted_s = self._sent_s = self._desk.clock()
        if self._traits.session:
            require_holder(self._desk, self._traits)
        admission = self._means.admission
        assignment = admission.at_once(self._traits, self._id, self._route.template)
        if assignment is None:
            try:
                assignment = await admission.admit(self._traits, self._id, self._route.template)
            finally:
                # Also for those who waited in vain or left: their wait is the one to know of.
                self._admitted_s = self._sent_s = self._desk.clock()
        return await self._try(assignment)

    async def _try(self, assignment: Assignment) -> Reply | None:
        while True:
            self._assignment, self._decision = assignment, assignment.decision
            self._hearing.began(assignment, self._traits, self._route.template)
            line = self._means.pair.line(assignment.backend)
            line.users += 1
            try:
                result = await self._attempt(line)
                if isinstance(result, Opened):
                    await self._pass_on(result)
                    return None
                if result.stays or not (result.silent or self._may_move(assignment.backend, free=result.free)):
                    return await self._give_up(result)
                await self._move(assignment, result)
            finally:
                line.users -= 1
            try:
                assignment = await self._wait_elsewhere(assignment.backend, result)
            except (QueueFull, QueueTimeout) as error:
                return self._give_up_waiting(result, error)

    # ------------------------------------------------------------ send, peek

    async def _attempt(self, line: Line) -> Opened | Trouble:
        call = self._call(line)
        self._attempts += 1
        if self._attempts == 1:
            self._sent_s = self._desk.clock()
        self._unheard = True
        try:
            # A second attempt goes over a new connection: with a replay on each side a prompt would be sent four times.
            opened, replayed = await open_answer(
                line.upstream,
                call,
                self._route.dialect,
                task=self._request.task,
                first_byte_s=self._means.patience.first_byte_s,
                fresh=self._first_failure is not WELL,
            )
        except UpstreamError as error:
            self._unheard = isinstance(error, FirstByteTimeout)
            return unanswered(error)
        self._unheard = False
        self._desk.spoke(line.backend)
        self._attempts += replayed
        if opened.verdict is BUSY:
            return Trouble(BackendBusy("the backend's queue is full"), Event.NEUTRAL, free=True, answer=opened)
        if opened.verdict is FAILED:
            return Trouble(BackendBroken("the backend failed the request"), Event.FAILURE, answer=opened)
        return opened

    def _call(self, line: Line) -> Call:
        content = b"" if self._body is None else self._body.content
        again, keyed = self._first_failure is not WELL, self._client_name is not None
        return call_to(line, self._request, self._id, content, again=again, keyed=keyed)

    # ------------------------------------------------------------ failover

    def leaves(self, backend: Backend) -> bool:
        """See UnderWay. The place is taken in this step, as another may have it in the next. Where there is none and
        nobody may wait, it stays: it has been let in, and is not to be refused for its being moved."""
        assignment, admission = self._assignment, self._means.admission
        here = assignment is not None and assignment.backend is backend
        if not (here and self._desk.has_retry() and self._may_move(backend, free=True)):
            return False
        self._next = admission.beside(self._traits, self._id, self._route.template, backend)
        return (self._next is not None or admission.rules.max_waiting > 0) and self._desk.may_retry()

    def _may_move(self, failed: Backend, *, free: bool) -> bool:
        """Whether a second attempt is allowed and the other backend would take it, now or when it has room."""
        if self._first_failure is not WELL or not self._desk.serves_beside(failed):
            return False
        if self._decision is not None and self._decision.reason is Reason.STATE:
            return False  # no other engine has what it names, though this one may have lost it on the way
        return free or self._desk.may_retry()

    async def _move(self, first: Assignment, trouble: Trouble) -> None:
        """Give the first attempt up, its connection closed, before the second begins."""
        self._first_failure, self._assignment = trouble.failed, None
        self._hearing.moved(trouble)
        self._desk.settle(first, Outcome.FAILED_BEFORE_COMMIT, unheard=self._unheard)
        if trouble.answer is not None:
            self._kept = await keep(trouble.answer)

    async def _wait_elsewhere(self, failed: Backend, trouble: Trouble) -> Assignment:
        """A place on the other backend: the one that it has already, or one that may have to be waited for."""
        place, self._next = self._next, None
        if place is not None:
            return place
        since_s = self._desk.clock()
        try:
            return await self._means.admission.readmit(
                self._traits, self._id, self._route.template, failed, returns=trouble.silent
            )
        finally:
            self._waited_s = self._desk.clock() - since_s

    def _give_up_waiting(self, trouble: Trouble, error: CrossoverError) -> Reply:
        """The first backend failed and the other has no room: what the first one said is the answer, if it spoke."""
        without_frames(error)
        if self._kept is not None:
            self._failure = trouble.failed
            return self._answer_kept(self._kept)
        raise error if trouble.free else trouble.error

    def _answer_kept(self, kept: Kept) -> Reply:
        self._status = kept.status
        return kept_reply(kept, self._stamps())

    async def _give_up(self, trouble: Trouble) -> Reply | None:
        """No further attempt: the client gets a backend's own answer where there is one, else an error of ours."""
        self._hearing.failed(trouble)
        self._failure = trouble.failed
        if trouble.answer is not None:
            if trouble.answer.scanner is None or trouble.answer.verdict is FAILED:
                await self._pass_on(trouble.answer)
                return None
            # Busy, said inside a 200: as a true 503 the clients' own retries understand it.
            trouble.answer.answer.close()
        elif self._kept is not None:
            return self._answer_kept(self._kept)
        raise trouble.error

    # ------------------------------------------------------------ commit, stream

    async def _pass_on(self, opened: Opened) -> None:
        passage = Passage(
            opened,
            self._route.dialect,
            sequences=self._traits.weight,
            limits=self._means.patience,
            clock=self._desk.clock,
            on_bytes=self._lives,
        )
        self._passage = passage
        self._status = opened.status
        if self._route.dialect is RESPONSES:  # a stream says its id at once, before anybody can ask for it
            keep_made(self._desk, self._assignment, passage.made)
        self._free()  # nothing is sent twice from here on, and streams last long
        if opened.verdict is GOOD:
            self._hearing.served()
            self._greet(opened)
        elif opened.verdict is CLIENT_FAULT:
            self._hearing.refused()
        await passage.run(self._request, self._stamps())
        self._conclude(passage)
        if self._route.dialect is RESPONSES:
            keep_made(self._desk, self._assignment, passage.made)

    def _greet(self, opened: Opened) -> None:
        """A good first event closes a half-open circuit at once; it must not wait for a long stream's end."""
        if self._assignment is None or opened.mute:
            return
        self._lives()
        if self._assignment.probe:
            self._hearing.judge(Event.SUCCESS)

    def _lives(self) -> None:
        if self._assignment is not None:
            self._desk.tokens_flowed(self._assignment.backend)

    def _conclude(self, passage: Passage) -> None:
        """The outcome of a request whose answer was passed on to some end."""
        if passage.error is not None:
            self._failure = passage.error.code, passage.opened.status
            self._outcome = Outcome.SHUT_DOWN if self._ending else Outcome.FAILED_AFTER_COMMIT
            self._hearing.judge(Event.NEUTRAL if self._ending else Event.FAILURE)
        elif passage.complained:
            self._failure = self._failure[0] or "error_event", passage.opened.status
            self._outcome = Outcome.FAILED_AFTER_COMMIT
            self._hearing.judge(Event.NEUTRAL)
        elif passage.opened.verdict in (GOOD, CLIENT_FAULT):
            self._outcome = FINISHED
            self._hearing.judge(SUCCESS if passage.opened.verdict is GOOD else Event.NEUTRAL)

    # ------------------------------------------------------------ settle

    def _refuse(self, error: CrossoverError) -> Reply:
        self._failure, self._status = (error.code, self._failure[1]), error.status
        closing = error.side is Side.CLIENT or isinstance(error, ShuttingDown | BodiesFull)
        return error_reply(error, self._route.dialect, self._stamps(), close=closing)

    def _gone(self) -> None:
        """The client left. Behind the end of its stream it has all there is: many clients close at once there. Behind a
        break it is that which ended the answer."""
        if self._passage is not None and (self._passage.delivered or self._passage.error is not None):
            self._conclude(self._passage)
            return
        committed = self._passage is not None and self._passage.committed
        self._outcome = Outcome.CLIENT_GONE_IN_STREAM if committed else Outcome.CLIENT_GONE_WAITING
        self._status = self._status if committed else CLIENT_CLOSED_REQUEST

    def _free(self) -> None:
        """Let go of the request's body."""
        if self._body is not None:
            self._body.free()

    def _settle(self) -> None:
        self._free()
        self._hearing.closed()
        assignment, self._assignment = self._assignment, None
        if assignment is not None:
            self._desk.settle(assignment, self._outcome, unheard=self._unheard)
        if self._next is not None:  # its client left as it was to be moved
            self._desk.take_back(self._next)

    def _stamps(self) -> bytes:
        return stamps_of(self._id, self._decision)
