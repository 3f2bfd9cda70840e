"""What operators are shown, as schemas by name: the state, decisions, speeds, the last minutes and the journal.

Not here: the paths that show them (operators.py).
"""

from proxy.model import CircuitState, Outcome, Policy, Reason, Role
from proxy.openapi.words import Schema, by_name, flag, many, maybe, number, record, ref, text, whole
from proxy.routing.out import Out

_ROLE = text("A role.", Role)
_SEQUENCES = whole("Sequences.")
_SECONDS = number("Seconds.")
_PREDICTED = maybe(number("Predicted seconds that the request adds there; null where no curves tell it."))
_AT = number("Unix seconds.")


def schemas() -> Schema:
    """Every schema of the operators' document."""
    return {
        "Error": record("What went wrong.", error=text("What happened and what to do.")),
        "Alive": record("The process runs.", status=text("", ("alive",))),
        "Index": record("The port.", crossover=text("The version."), paths=many(text("A path, its method before it."))),
        "Reloaded": record("Taken over.", reloaded=flag("True."), changes=many(text("A key, old and new value."))),
        "Refused": record("Not taken over.", reloaded=flag("False."), problems=many(text("What is wrong, and where."))),
        "Status": _status(),
        "Backend": _backend(),
        "Engine": _engine(),
        **_decisions(),
        **_failures(),
        **_speeds(),
        **_minutes(),
        "Differences": record(
            "The configuration in force.",
            set=many({}, "What is not the default."),
            pending=many({}, "What a reload would change."),
            problems=many(text("What is wrong with the file as it is now.")),
        ),
    }


def _status() -> Schema:
    return record(
        "Everything that is so at this moment.",
        absent=("sentence", "troubles", "config_file"),
        sentence=text("Where requests go now, and why."),
        troubles=many(
            record(
                "Something that is wrong now, the worst first.",
                code=text("Its kind."),
                message=text("What it is, in words."),
                severe=flag("Whether requests fail or wait for it, or may at once."),
            )
        ),
        version=text("Of the proxy."),
        config_file=maybe(text("Path of the configuration as the proxy was started with; null: none was read.")),
        phase=text("Where the proxy is in its life.", ("starting", "serving", "settling", "draining", "stopped")),
        policy=text("The rule in force.", Policy),
        pinned=maybe(text("The role that an operator has pinned everything to.", Role)),
        warnings=many(record("Something worth a look.", code=text("Its kind."), message=text("What it is."))),
        engines=record("What either engine says of itself.", **{role.value: maybe(ref("Engine")) for role in Role}),
        urls=record("Where they are.", **{role.value: text("Base address.") for role in Role}),
        learning=maybe(ref("Learning")),
        verdict=many(text("The measured verdict on one length of context.")),
        dropped_in_flight=by_name(_SEQUENCES, "What still runs on backends that a reload has dropped, by url."),
        backends=many(ref("Backend"), "Both, the speculative one first."),
        regime=maybe(text("The role that `threshold` and `consolidate` favour; null: not looked at.", Role)),
        regime_age_s=maybe(number("How long it has been favoured; null: since the start, or not looked at.")),
        smoothed=number("Sequences in flight on both, smoothed."),
        enter_at=maybe(whole("Speculate at or below it; null: the policy in force does not look at it.")),
        leave_at=maybe(whole("Stop at or above it; null: the policy in force does not look at it.")),
        waiting=whole("Requests in the queue."),
        connections=whole("Open connections of clients."),
        held_body_bytes=whole("Bytes of requests' bodies in memory."),
        ready=flag("Whether new requests are welcome."),
        reload_failed=flag("Whether the last reload was refused."),
        learning_suspended=maybe(flag("Whether learning is put aside; null where it is off.")),
        measured_gain=maybe(number("Speed of speculative by baseline's at the best load, as measured; null: unknown.")),
        learned_gain=maybe(number("The same as learned; null where nothing is.")),
        suspension_predicted_s=maybe(
            number("Seconds that learning, put aside for it, had predicted; null: it is not.")
        ),
        suspension_seen_s=maybe(number("What was seen in its place.")),
        suspension_answers=maybe(whole("Answers that this was seen in.")),
    )


def _backend() -> Schema:
    return record(
        "One backend.",
        role=_ROLE,
        in_flight=whole("Sequences leased and not settled."),
        lingering=whole("Of these, sequences whose client has left."),
        requests=whole("Requests that hold them."),
        oldest_s=number("Age of the oldest of these; 0 where there is none."),
        max_in_flight=maybe(whole("The limit in force; null: none is known.")),
        up=maybe(flag("Whether probes answer; null before the first.")),
        silent=flag("Whether it leaves a probe unanswered and gives nothing else, and does not count as down yet."),
        eligible=flag("Whether it is sent new requests."),
        draining=flag("Whether an operator keeps it from new requests."),
        circuit=text("The circuit breaker.", CircuitState),
        circuit_age_s=maybe(number("Since when; null: since the start.")),
        engine_running=maybe(whole("Sequences that run by the engine's own count.")),
        engine_waiting=maybe(whole("Sequences that wait by the engine's own count.")),
        engine_age_s=maybe(number("How old that count is.")),
        drift=maybe({"type": "integer", "description": "The engine's count less ours."}),
        accept_length=maybe(number("Tokens a step, as a drafting engine tells them.")),
        learned_ratio=maybe(number("By how much a token takes longer than was measured, as a factor.")),
        engine_change_age_s=maybe(number("Since another engine was found there; null: none was.")),
        curves_outdated=maybe(flag("Whether its version is not the measured one; null where either is unknown.")),
    )


def _engine() -> Schema:
    return record(
        "What an engine says of itself; null: it does not say.",
        model=maybe(text("Its model.")),
        version=maybe(text("Its version.")),
        context_length=maybe(whole("Tokens.")),
        weight_version=maybe(text("The version of its weights.")),
        max_running_requests=maybe(whole("Sequences that it runs at once.")),
        speculative_algorithm=maybe(text("How it drafts.")),
        speculative_adaptive=flag("Whether it drafts as much as it sees fit."),
        kv_tokens=maybe(whole("Tokens that its cache holds.")),
        started=maybe(number("Another number after each start.")),
        notices_leaving=flag("Whether it ends an answer whose client left before the first byte."),
    )


def _decisions() -> Schema:
    because = record(
        "The numbers behind it, before the request was counted.",
        absent=("extrapolated", "baseline_failures"),
        policy=text("The rule.", Policy),
        **{f"{role.value}_in_flight": _SEQUENCES for role in Role},
        smoothed=maybe(number("Sequences in flight on both, smoothed; null here and below: not looked at.")),
        enter_at=maybe(_SEQUENCES),
        leave_at=maybe(_SEQUENCES),
        regime=maybe(_ROLE),
        recent_failures=whole("Of the speculative backend; they weigh as load."),
        **{f"{role.value}_cached": whole("Tokens of its prompt believed to be cached there.") for role in Role},
        learned=flag("Whether live traffic had corrected the curves."),
        **{f"{role.value}_cost_s": _PREDICTED for role in Role},
        extrapolated=flag("Whether one of the costs lies outside what was measured."),
        baseline_failures=whole("Recent failures of the baseline backend."),
        **{f"{role.value}_out": maybe(text("Why it took nothing new; null: it did.", Out)) for role in Role},
    )
    decision = record(
        "One attempt of a request.",
        at_s=_AT,
        request_id=text("As the answer's x-request-id has it."),
        route=text("A row of the allow-list."),
        weight=whole("Its sequences.", least=1),
        attempt=whole("1, or 2 after a failure.", least=1),
        role=maybe(text("Where it went; null: nowhere yet.", Role)),
        reason=text("Why.", Reason),
        because=ref("Because"),
    )
    return {
        "Because": because,
        "Decision": decision,
        "Settled": _settled(),
        "Decisions": record(
            "Decisions; where they are of one request, the latest 20, all that /explain tells of it.",
            absent=("request_id", "sentences", "settled"),
            request_id=text("Its id."),
            sentences=many(text("A sentence.")),
            decisions=many(ref("Decision")),
            settled=maybe(ref("Settled")),
        ),
        "Explanation": record(
            "One request.",
            request_id=text("Its id."),
            sentences=many(text("A sentence.")),
            decisions=many(ref("Decision")),
            settled=maybe(ref("Settled")),
        ),
    }


def _failures() -> dict[str, Schema]:
    failure = record(
        "A request that ended in an error of the proxy's or an engine's, or whose client left a silent engine.",
        at_s=_AT,
        request_id=text("As the answer's x-request-id has it."),
        route=text("A row of the allow-list."),
        settled=ref("Settled"),
    )
    return {"Failures": record("Requests that failed.", failures=many(failure))}


def _settled() -> Schema:
    duration, tokens = maybe(number("Seconds.")), maybe(whole("By the engine's own count."))
    return record(
        "How the request ended, where it has.",
        status=maybe(whole("HTTP status.")),
        outcome=text("Its end.", Outcome),
        failure=maybe(text("The code of what failed at last.")),
        failure_status=maybe(whole("HTTP status that the engine had given then.")),
        first_failure=maybe(text("The code of what failed first.")),
        first_failure_status=maybe(whole("HTTP status that the first engine had given.")),
        backend_out=maybe(text("Its backend as it ended: `down` or `silent`; null: neither, or it ended well.")),
        silent_s=maybe(number("Seconds in which nothing had come from that backend; null: something had.")),
        attempts=whole("How often it was sent."),
        role=maybe(_ROLE),
        stream=flag("Whether the answer streamed."),
        duration_s=number("Seconds from its head to the end."),
        queue_s=number("Seconds that it waited for room."),
        overhead_s=number("Seconds that the proxy took."),
        ttft_s=duration,
        tpot_s=duration,
        prompt_tokens=tokens,
        completion_tokens=tokens,
        cached_tokens=tokens,
    )


def _speeds() -> Schema:
    edge = maybe(number("An end of the 95 % interval; null: not known."))
    point = record(
        "Speed of a whole backend.",
        in_flight=number("Sequences."),
        tok_s=number("Output tokens a second."),
        low=edge,
        high=edge,
        predicted=flag("Whether it was filled in and not measured."),
    )
    contrast = record(
        "Speculative against baseline.",
        concurrency=number("Sequences in flight."),
        log_ratio=number("Mean ln of the ratio of speeds."),
        low=edge,
        high=edge,
        repeats=whole("Pairs of measurements."),
        queued=flag("Whether an engine ran fewer than were asked of it."),
        predicted=flag("Whether it was filled in and not measured."),
    )
    crossing = record("A change of sign.", at=number("Sequences."), low=edge, high=edge, faster_above=_ROLE)
    context = record(
        "One length of context.",
        context_tokens=whole("Tokens."),
        verdict=text("Its kind."),
        sentence=text("The verdict."),
        reason=text("Its evidence."),
        crossings=many(crossing),
        band=maybe(record("Thresholds.", enter_at=_SEQUENCES, leave_at=_SEQUENCES)),
        **{role.value: many(ref("Speed")) for role in Role},
        contrasts=many(contrast),
        **{f"{role.value}_prefill_tok_s": maybe(number("Prompt tokens a second.")) for role in Role},
    )
    return {
        "Speed": point,
        "Curves": record(
            "What `routing.curves_file` holds; without it there are no contexts.",
            absent=("placement", "model", "engines"),
            measured_at=maybe(text("When.")),
            placement=maybe(text("Whose GPUs.")),
            model=maybe(text("Which model.")),
            engines=by_name(maybe(text("A version.")), "The engines that were measured."),
            contexts=many(context),
            learned=maybe(ref("Learned")),
        ),
        **_learned(),
    }


def _learned() -> Schema:
    stand = {
        "suspended_for_s": _SECONDS,
        "suspensions": whole("How often it was put aside."),
        "requests": whole("Requests that it saw."),
        "probes": whole("Of these, sent to the other backend to see how fast it is."),
        "trials": whole("How often the other role was favoured on shared GPUs to see how fast it is."),
        "tries": maybe(text("The role that is favoured for that now.")),
        "ratios": by_name(number("A factor."), "By how much a token takes longer than was measured."),
    }
    evidence = record(
        "What was seen at one load.",
        context_tokens=whole("Tokens."),
        in_flight=number("Sequences."),
        ratio=number("A factor."),
        age_s=_SECONDS,
    )
    corrected = record("Corrected speed.", in_flight=number("Sequences."), tok_s=number("Tokens a second."))
    context = record(
        "One length of context.", context_tokens=whole("Tokens."), **{role.value: many(corrected) for role in Role}
    )
    return {
        "Learning": record(
            "How learning stands.",
            sentence=text("The same in words, for both backends."),
            beside=by_name(text("A few words."), "The time for a token beside the measured one, now, by role."),
            **stand,
        ),
        "Learned": record(
            "The same with all evidence and the corrected speeds.",
            **stand,
            backends=record("The evidence of either.", **{role.value: many(evidence) for role in Role}),
            contexts=many(context),
        ),
    }


def _minutes() -> Schema:
    entry = record(
        "Something that has changed.",
        absent=("role", "numbers"),
        at_s=_AT,
        kind=text("What kind of change."),
        role=maybe(_ROLE),
        sentence=text("What happened, for people."),
        numbers={"type": "object", "description": "The numbers behind it."},
    )
    return {
        "History": record(
            "Samples.",
            step_s=number("Seconds between two."),
            columns=many(text("A name.")),
            samples=many({"type": "array", "description": "One value for each column."}),
        ),
        "Journal": record("Changes.", events=many(entry)),
    }
