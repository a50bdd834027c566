"""The moves: the instance's rules of docs/protocol.md, section 8, and everything that can happen around them.

Every choice of time is left open: a message arrives whenever it likes, a timer fires whenever it likes, a handler ends
whenever it likes; only leases and deadlines count ticks. A lost message is one that never arrives.
"""

from collections.abc import Iterator
from itertools import permutations

from .checker import Aim, Move
from .store import LEASE, NEVER, Answered, Reply, Request, Store, lowered
from .world import (
    HOLDING,
    NAMES,
    NONE,
    OVER,
    WAIT,
    Budget,
    Call,
    Config,
    Instance,
    Past,
    Task,
    World,
    watch,
)


class Model:
    """The moves of a configuration."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._broken = config.broken
        self._twins = len(set(config.overlaps)) == 1
        self.store = Store(config.decide, config.max_attempts)

    def initial(self) -> World:
        nothing = (0,) * self._config.slots
        unstarted = (NEVER,) * self._config.slots
        instances = tuple(Instance((WAIT,) * self._config.slots) for _ in self._config.overlaps)
        return World(self.store.empty, instances, (), 1, self._config.budget, Past(unstarted, nothing, nothing))

    def aims(self) -> tuple[Aim[World], ...]:
        return (
            Aim("no run is left for ever while an instance is up", self._somebody_is_up, self._all_ended),
            Aim("late messages and stops leave a run its attempts", self._has_attempts_left, self._succeeded),
            Aim("a claim sent again is the same claim", self._alone_and_claiming, self._first_started),
        )

    def moves(self, world: World) -> Iterator[Move[World]]:
        """Everything that can happen next."""
        for move in self._all_moves(world):
            if self._config.prompt:
                yield from self._prompt(move)
            else:
                yield move

    def _prompt(self, move: Move[World]) -> Iterator[Move[World]]:
        """The move, and with it the arrival of what it sends."""
        for number, instance in enumerate(move.state.instances):
            for slot, task in enumerate(instance.tasks):
                if (task.call and not task.call.reply) or (task.beat and not task.beat.reply):
                    for label, state, fault, misfortune in self._arrivals(move.state, (number, slot), task):
                        both = (*move.label, "and", *label), state, move.fault or fault, move.misfortune or misfortune
                        yield from self._prompt(Move(*both))
                    return
        yield move

    def _all_moves(self, world: World) -> Iterator[Move[World]]:
        yield from self._tick(world)
        if world.due < self._config.slots:
            yield Move(("slot", world.due + 1, "is due"), world._replace(due=world.due + 1))
        for request in dict.fromkeys(world.strays):
            yield self._stray_arrives(world, request)
        for number, instance in enumerate(world.instances):
            yield from self._fates(world, number, instance)
            for slot, task in enumerate(instance.tasks):
                place = (number, slot)
                if task.call or task.beat:
                    yield from self._arrivals(world, place, task)
                if not instance.frozen and instance.status != "down":
                    yield from self._steps(world, place, task)

    # Time

    def _tick(self, world: World) -> Iterator[Move[World]]:
        slow = sum(_about_to_be_slow(instance) for instance in world.instances)
        instances = tuple(self._older(instance) for instance in world.instances)
        later = world._replace(store=self.store.tick(world.store), instances=instances)
        if slow <= world.budget.delays and later != world:
            yield Move(("tick",), _spend(later, "delays", slow), misfortune=slow > 0)

    def _older(self, instance: Instance) -> Instance:
        tasks = tuple(
            task._replace(
                left=max(task.left - 1, 0),
                call=_older_call(task.call) if task.phase == "claim" else task.call,
                beat=_older_call(task.beat),
            )
            for task in instance.tasks
        )
        return self._noticing(instance._replace(tasks=tasks))

    def _noticing(self, instance: Instance) -> Instance:
        """A holder whose deadline is over tells its handler to stop, as soon as it can do anything."""
        if instance.frozen or "no-deadline" in self._broken:
            return instance
        tasks = tuple(self._lost(task) if task.phase == "run" and not task.left else task for task in instance.tasks)
        return instance._replace(tasks=tasks)

    def _lost(self, task: Task) -> Task:
        if "claims-beside-its-handler" in self._broken and not task.told:
            return watch(task.after)._replace(zombie=True)
        return task._replace(left=0, told=task.told or "loss")

    # The network

    def _stray_arrives(self, world: World, request: Request) -> Move[World]:
        answered = self.store.answer(world.store, request)
        strays = list(world.strays)
        strays.remove(request)
        state = self._with_answer(world._replace(strays=tuple(strays)), answered)
        return Move(("a late", *_named(request), "arrives"), state, answered.fault)

    def _arrivals(self, world: World, place: tuple[int, int], task: Task) -> Iterator[Move[World]]:
        for which, call in (("call", task.call), ("beat", task.beat)):
            if not call or call.reply:
                continue
            request = self._request(place, task, which)
            answered = self.store.answer(world.store, request)
            state = self._answered(self._with_answer(world, answered), place, which, call, answered.reply)
            label = (*_named(request), f"of {NAMES[place[0]]} arrives:", *_told(answered.reply))
            yield Move(label, state, answered.fault)
            if world.budget.duplicates and answered.fault is None:
                copy = request._replace(won=answered.reply.attempt if answered.reply.outcome == "won" else 0)
                doubled = self._with_strays(_spend(state, "duplicates"), [copy])
                yield Move((*label, "and a copy is still on its way"), doubled, misfortune=True)

    def _with_answer(self, world: World, answered: Answered) -> World:
        """The world after the store has acted. A new fence is 0, and all earlier ones are lowered by as much."""
        unfinished = {run.slot for run in self.store.unfinished(answered.store)}
        starts = tuple(count if slot in unfinished else 0 for slot, count in enumerate(world.past.starts, 1))
        world = world._replace(store=answered.store, past=world.past._replace(starts=starts))
        if not answered.rise:
            return world
        instances = tuple(
            instance._replace(tasks=tuple(_lowered(task, answered.rise) for task in instance.tasks))
            for instance in world.instances
        )
        fences = tuple(fence if fence == NEVER else lowered(fence, answered.rise) for fence in world.past.fences)
        return world._replace(instances=instances, past=world.past._replace(fences=fences))

    def _answered(self, world: World, place: tuple[int, int], which: str, call: Call, reply: Reply) -> World:
        """The answer is on its way back. One that wins nothing is heard at once: it only says what to wait for."""
        instance = world.instances[place[0]]
        task = instance.tasks[place[1]]
        if which == "call" and task.phase == "claim" and reply.outcome != "won" and not instance.frozen:
            return self._hears_not_won(world, place, task, reply)
        grants = reply.outcome == "won" or (which == "beat" and reply.held)
        return _with_task(world, place, task._replace(**{which: Call(call.age if grants else 0, reply)}))

    def _request(self, place: tuple[int, int], task: Task, which: str) -> Request:
        number, slot = place
        kind = "heartbeat" if which == "beat" else task.phase
        if kind != "claim":
            return Request(kind, slot + 1, task.token)
        return Request(kind, slot + 1, task.token, task.after, task.takeover, self._config.overlaps[number])

    def _with_strays(self, world: World, requests: list[Request]) -> World:
        return world._replace(strays=(*world.strays, *requests)[: self._config.strays])

    def _undelivered(self, place: tuple[int, int], task: Task, *kinds: str) -> list[Request]:
        calls = {"call": task.call, "beat": task.beat}
        return [self._request(place, task, which) for which in kinds if (call := calls[which]) and not call.reply]

    # What becomes of an instance

    def _fates(self, world: World, number: int, instance: Instance) -> Iterator[Move[World]]:
        budget, name = world.budget, NAMES[number]
        if instance.status == "down":
            if budget.restarts:
                restarted = self._restarted(world, number)
                yield Move((name, "restarts"), _spend(restarted, "restarts"), misfortune=True)
            return
        if budget.crashes:
            yield Move((name, "crashes"), _spend(self._crashed(world, number), "crashes"), misfortune=True)
        if instance.frozen:
            thawed = self._noticing(instance._replace(frozen=False))
            yield Move((name, "thaws"), _with_instance(world, number, thawed), misfortune=True)
            return
        if budget.freezes:
            frozen = _with_instance(world, number, instance._replace(frozen=True))
            yield Move((name, "freezes"), _spend(frozen, "freezes"), misfortune=True)
        if budget.stops and instance.status == "up":
            stopping = self._stopping(world, number, instance)
            yield Move((name, "stops"), _spend(stopping, "stops"), misfortune=True)
        if instance.status == "stopping" and all(task == OVER for task in instance.tasks):
            down = _with_instance(world, number, instance._replace(status="down"))
            yield Move((name, "has stopped"), down, self._fault_of_stop(world))

    def _crashed(self, world: World, number: int) -> World:
        """Its handlers are gone; what it had sent may still arrive."""
        instance = world.instances[number]
        sent = [
            request
            for slot, task in enumerate(instance.tasks)
            for request in self._undelivered((number, slot), task, "call", "beat")
        ]
        gone = Instance((OVER,) * len(instance.tasks), "down")
        return self._with_strays(_with_instance(world, number, gone), sent)

    def _stopping(self, world: World, number: int, instance: Instance) -> World:
        for slot, task in enumerate(instance.tasks):
            place = (number, slot)
            if task.phase in ("wait", "watch"):
                world = _with_task(world, place, OVER)
            elif task.phase == "run" and "releases-under-handler" in self._broken:
                world = self._give_back(world, place, task._replace(zombie=True))
            elif task.phase == "run":
                world = _with_task(world, place, task._replace(told=task.told or "stop"))
        return _with_instance(world, number, world.instances[number]._replace(status="stopping"))

    def _restarted(self, world: World, number: int) -> World:
        """Recovery and catch-up; what ``active`` says is acted on at once, a later look is a later restart."""
        skip = self._config.overlaps[number] == "skip"
        tasks = [WAIT if slot >= world.due - 1 else OVER for slot in range(self._config.slots)]
        world = _with_instance(world, number, Instance(tuple(tasks)))
        for run in self.store.unfinished(world.store):
            place = (number, run.slot - 1)
            if "no-recovery" in self._broken:
                continue
            if run.live:
                world = _with_task(world, place, watch(run.attempt))
            elif run.slot == world.due or not skip:
                world = self._claiming(world, place, Task("claim", after=run.attempt, takeover=True))
        return world

    # What an instance does

    def _steps(self, world: World, place: tuple[int, int], task: Task) -> Iterator[Move[World]]:
        who = (NAMES[place[0]], f"slot {place[1] + 1}:")
        if task.phase == "wait" and place[1] < world.due:
            yield Move((*who, "fires"), self._claiming(world, place, Task("claim")))
        elif task.phase == "watch":
            check = Task("claim", after=task.after, takeover=True, zombie=task.zombie)
            yield Move((*who, "checks"), self._claiming(world, place, check))
            if task.zombie:
                yield Move((*who, "the old handler ends"), _with_task(world, place, task._replace(zombie=False)))
        elif task.phase == "run":
            yield from self._handler_ends(world, place, task, who)
        if task.call:
            yield from self._call_ends(world, place, task, who)
        if task.phase in HOLDING:
            yield from self._heartbeats(world, place, task, who)

    def _claiming(self, world: World, place: tuple[int, int], task: Task) -> World:
        return _with_task(world, place, task._replace(token=self._fresh_token(world), call=Call()))

    def _fresh_token(self, world: World) -> str:
        """A token that neither the store, an instance nor a message knows."""
        used = {task.token for instance in world.instances for task in instance.tasks}
        used.update(request.token for request in world.strays)
        used.update(run.token for run in self.store.unfinished(world.store))
        used.update(self.store.ended_by(world.store))
        return next(token for number in range(1, 99) if (token := f"t{number}") not in used)

    def _handler_ends(
        self, world: World, place: tuple[int, int], task: Task, who: tuple[str, ...]
    ) -> Iterator[Move[World]]:
        finishing = _with_task(world, place, task._replace(phase="finish", told="", call=Call()))
        if "event-before-finish" in self._broken:
            finishing, fault = self._success(finishing, place)
            yield Move((*who, "the handler returns, event success"), finishing, fault)
        else:
            yield Move((*who, "the handler returns"), finishing)
        if task.told == "stop":
            yield Move((*who, "the handler raises, as it was told to stop"), self._give_back(world, place, task))
        elif task.told == "loss" and "releases-on-loss" in self._broken:
            yield Move((*who, "the handler raises"), self._released(world, place, task))
        elif task.told == "loss":
            yield Move((*who, "the handler raises, as its lease is lost"), self._after_loss(world, place, task))

    def _give_back(self, world: World, place: tuple[int, int], task: Task) -> World:
        """Release a run whose handler was interrupted by stop: its attempt is not used up."""
        starts = _added(world.past.starts, place[1], -1)
        return self._released(world._replace(past=world.past._replace(starts=starts)), place, task)

    def _released(self, world: World, place: tuple[int, int], task: Task) -> World:
        world = self._with_strays(world, self._undelivered(place, task, "beat"))
        return _with_task(
            world, place, Task("release", task.after, call=Call(), told=task.told, zombie=task.zombie, token=task.token)
        )

    def _after_loss(self, world: World, place: tuple[int, int], task: Task) -> World:
        world = self._with_strays(world, self._undelivered(place, task, "beat"))
        return _with_task(world, place, self._watching(world, place, task.after))

    def _watching(self, world: World, place: tuple[int, int], after: int) -> Task:
        if world.instances[place[0]].status == "stopping" or "no-watch" in self._broken:
            return OVER
        return watch(0 if "forgets-attempt" in self._broken else after)

    def _heartbeats(
        self, world: World, place: tuple[int, int], task: Task, who: tuple[str, ...]
    ) -> Iterator[Move[World]]:
        if not task.beat:
            if 0 < task.left < LEASE and task.told != "loss":
                yield Move((*who, "sends a heartbeat"), _with_task(world, place, task._replace(beat=Call())))
            return
        if task.beat.reply:
            yield Move((*who, "hears of its heartbeat"), _with_task(world, place, self._beaten(task, task.beat)))
        if world.budget.delays:
            given_up = _with_task(world, place, task._replace(beat=NONE))
            given_up = self._with_strays(given_up, self._undelivered(place, task, "beat"))
            yield Move((*who, "gives up its heartbeat"), _spend(given_up, "delays"), misfortune=True)

    def _beaten(self, task: Task, beat: Call) -> Task:
        task = task._replace(beat=NONE)
        assert beat.reply
        if task.told == "loss":
            return task
        if beat.reply.held:
            return task._replace(left=max(task.left, self._lease_left(beat)))
        if "ignores-refused-heartbeat" in self._broken:
            return task._replace(left=LEASE)
        return self._lost(task) if task.phase == "run" else task._replace(left=0)

    def _lease_left(self, call: Call) -> int:
        """A lease counts from the start of the very call that was answered."""
        return LEASE if "lease-from-answer" in self._broken else LEASE - call.age

    def _call_ends(
        self, world: World, place: tuple[int, int], task: Task, who: tuple[str, ...]
    ) -> Iterator[Move[World]]:
        assert task.call
        if task.call.reply:
            yield from self._hears(world, place, task, task.call.reply, who)
        if not world.budget.delays:
            return
        world = _spend(self._with_strays(world, self._undelivered(place, task, "call")), "delays")
        if task.phase == "claim" and world.instances[place[0]].status == "stopping":
            yield Move((*who, "gives up its claim"), self._unanswered_at_stop(world, place, task), misfortune=True)
            return
        again = task._replace(call=Call())
        if "takes-given-up-answers" in self._broken and task.call.reply:
            again = task._replace(call=Call(0, task.call.reply))
        if "fresh-token-on-retry" in self._broken and task.phase == "claim":
            again = again._replace(token=self._fresh_token(world))
        yield Move(
            (*who, f"gives up its {task.phase}, sends it again"), _with_task(world, place, again), misfortune=True
        )
        if task.phase == "claim" and not self._config.patient:
            watching = _with_task(world, place, watch(task.after)._replace(zombie=task.zombie))
            yield Move((*who, "gives up its claim for good"), watching, misfortune=True)

    def _unanswered_at_stop(self, world: World, place: tuple[int, int], task: Task) -> World:
        if "no-release-at-stop" in self._broken:
            return _with_task(world, place, OVER)
        return self._released(world, place, task)

    def _hears(
        self, world: World, place: tuple[int, int], task: Task, reply: Reply, who: tuple[str, ...]
    ) -> Iterator[Move[World]]:
        if task.phase == "finish":
            yield self._hears_of_finish(world, place, task, reply, who)
        elif task.phase == "release":
            after = OVER if task.told == "stop" else self._watching(world, place, task.after)
            yield Move((*who, "hears of its release"), _with_task(world, place, after))
        elif reply.outcome == "won":
            yield self._hears_won(world, place, task, reply, who)
        else:
            yield Move((*who, "hears", *_told(reply)), self._hears_not_won(world, place, task, reply))

    def _hears_of_finish(
        self, world: World, place: tuple[int, int], task: Task, reply: Reply, who: tuple[str, ...]
    ) -> Move[World]:
        held = reply.held or "success-anyway" in self._broken
        if not held:
            return Move((*who, "hears that it lost the run"), self._after_loss(world, place, task))
        world = self._with_strays(world, self._undelivered(place, task, "beat"))
        world = _with_task(world, place, OVER)
        if "event-before-finish" in self._broken:
            return Move((*who, "hears of its finish"), world)
        world, fault = self._success(world, place)
        return Move((*who, "hears of its finish, event success"), world, fault)

    def _success(self, world: World, place: tuple[int, int]) -> tuple[World, str | None]:
        successes = _added(world.past.successes, place[1], 1)
        fault = "a run succeeds once" if successes[place[1]] > 1 else None
        return world._replace(past=world.past._replace(successes=successes)), fault

    def _hears_not_won(self, world: World, place: tuple[int, int], task: Task, reply: Reply) -> World:
        if reply.outcome == "done":
            return _with_task(world, place, OVER)
        watching = self._watching(world, place, task.after if reply.outcome == "none" else reply.attempt)
        if watching != OVER:
            watching = watching._replace(zombie=task.zombie)
        world = _with_task(world, place, watching)
        in_the_way = (place[0], reply.slot - 1)
        if reply.outcome == "overlap" and world.instances[place[0]].tasks[in_the_way[1]].phase in ("wait", "over"):
            return _with_task(world, in_the_way, self._watching(world, in_the_way, 0))
        return world

    def _hears_won(
        self, world: World, place: tuple[int, int], task: Task, reply: Reply, who: tuple[str, ...]
    ) -> Move[World]:
        assert task.call
        task = task._replace(after=reply.attempt)
        left = self._lease_left(task.call)
        if world.instances[place[0]].status == "stopping":
            given_back = self._released(world, place, task._replace(told="stop"))
            return Move((*who, "hears won, but stops"), given_back)
        if left <= 0 and "starts-late" not in self._broken:
            return Move((*who, "hears won, too late"), self._released(world, place, task))
        running = Task("run", task.after, left=max(left, 1), token=task.token)
        started = _with_task(world, place, running)
        past = world.past
        past = past._replace(fences=_set(past.fences, place[1], reply.fence), starts=_added(past.starts, place[1], 1))
        label = (*who, f"hears won, starts the handler with attempt {reply.attempt} and fence {reply.fence}")
        return Move(label, started._replace(past=past), self._fault_of_start(world, place, task, reply))

    # Properties

    def _fault_of_start(self, world: World, place: tuple[int, int], task: Task, reply: Reply) -> str | None:
        slot = place[1]
        one_by_one = all(overlap == "skip" for overlap in self._config.overlaps)
        earlier = max(world.past.fences) if one_by_one else world.past.fences[slot]
        held = any(run.live and run.token == task.token for run in self.store.unfinished(world.store))
        others = [
            other
            for instance in world.instances
            for at, other in enumerate(instance.tasks)
            if _believes(other, instance.frozen) and (one_by_one or at == slot)
        ]
        if others:
            return "one handler at a time believes in its lease"
        if not held:
            return "a handler starts only with a live lease of its own; an ended run is not started again"
        if task.zombie:
            return "an instance executes one handler of a run at a time"
        if reply.fence <= earlier:
            return "fences rise in the order of starts"
        if world.past.starts[slot] >= self._config.max_attempts:
            return "a run is started at most max_attempts times, unless a stop gave an attempt back"
        return None

    def _fault_of_stop(self, world: World) -> str | None:
        """Wanted where no message comes late and no claim is left unanswered: then a release comes last."""
        known = {task.token for instance in world.instances for task in instance.tasks}
        unstarted = [run for run in self.store.unfinished(world.store) if not world.past.starts[run.slot - 1]]
        left = any(run.live and run.token not in known for run in unstarted)
        undisturbed = self._config.patient and not self._config.strays and not self._config.budget.crashes
        return "a stop leaves no lease behind that nobody uses" if left and undisturbed else None

    def _somebody_is_up(self, world: World) -> bool:
        return any(instance.status == "up" and not instance.frozen for instance in world.instances)

    def _all_ended(self, world: World) -> bool:
        return not self.store.unfinished(world.store)

    def _has_attempts_left(self, world: World) -> bool:
        """Attempts were only used by handlers that started and by messages that were late; a stop uses none.

        A release that comes after the run was taken over gives nothing back, so stops count where there is no takeover.
        """
        spent = Budget(*(was - left for was, left in zip(self._config.budget, world.budget, strict=True)))
        used = world.past.starts[0] + spent.delays + spent.duplicates
        undisturbed = spent.crashes == spent.freezes == 0 and self._config.slots == 1
        undisturbed = undisturbed and (spent.stops == 0 or self._config.max_attempts == 1)
        unfinished = bool(self.store.unfinished(world.store))
        return undisturbed and unfinished and used < self._config.max_attempts and self._somebody_is_up(world)

    def _succeeded(self, world: World) -> bool:
        return world.past.successes[0] > 0

    def _alone_and_claiming(self, world: World) -> bool:
        tasks = world.instances[0].tasks
        alone = len(world.instances) == 1 == self._config.slots
        return alone and any(task.phase == "claim" and not task.takeover for task in tasks)

    def _first_started(self, world: World) -> bool:
        return world.past.fences[0] != NEVER

    def canonical(self, world: World) -> World:
        """One world for most that differ only in names of tokens, or in which twin is which."""
        return self._renamed(world, tuple(sorted(world.instances)) if self._twins else world.instances, world.strays)

    def exact(self, world: World) -> World:
        """One world for all such; slower."""
        orders = permutations(world.instances) if self._twins else [world.instances]
        return min(
            self._renamed(world, instances, strays) for instances in orders for strays in permutations(world.strays)
        )

    def _renamed(self, world: World, instances: tuple[Instance, ...], strays: tuple[Request, ...]) -> World:
        tokens = [task.token for instance in instances for task in instance.tasks]
        tokens += [request.token for request in strays]
        names = {token: f"t{number}" for number, token in enumerate(dict.fromkeys(filter(None, tokens)), 1)}
        store = self.store.renamed(world.store, tuple(names.items()))
        if all(token == name for token, name in names.items()):
            return world._replace(store=store, instances=instances, strays=tuple(sorted(strays)))
        return world._replace(
            store=store,
            instances=tuple(_renamed_instance(instance, names) for instance in instances),
            strays=tuple(sorted(request._replace(token=names[request.token]) for request in strays)),
        )


def _renamed_instance(instance: Instance, names: dict[str, str]) -> Instance:
    tasks = tuple(task._replace(token=names[task.token]) if task.token else task for task in instance.tasks)
    return instance._replace(tasks=tasks)


def _lowered(task: Task, rise: int) -> Task:
    if task.call and task.call.reply and task.call.reply.outcome == "won":
        reply = task.call.reply._replace(fence=lowered(task.call.reply.fence, rise))
        return task._replace(call=task.call._replace(reply=reply))
    return task


def _about_to_be_slow(instance: Instance) -> int:
    """Calls that will have taken a whole lease: a misfortune, unless it is a freeze's doing."""
    calls = [call for task in instance.tasks for call in (task.call, task.beat) if call]
    return 0 if instance.frozen else sum(call.age == LEASE - 1 for call in calls)


def _older_call(call: Call | tuple[()]) -> Call | tuple[()]:
    if not call or (call.reply and call.reply.outcome != "won" and not call.reply.held):
        return call
    return call._replace(age=min(call.age + 1, LEASE))


def _believes(task: Task, frozen: bool) -> bool:
    """Whether a handler goes on under a lease, for all it was told.

    One that was told of a stop keeps its lease until it ends; one that lost its lease was told so; a frozen one may
    thaw before its deadline.
    """
    if task.phase != "run":
        return task.zombie and task.phase == "release"
    return task.left > 0 if task.told == "stop" or frozen else not task.told


def _named(request: Request) -> tuple[object, ...]:
    return request.kind, request.token, "for slot", request.slot


def _told(reply: Reply) -> tuple[object, ...]:
    if not reply.outcome:
        return (reply.held,)
    return (reply.outcome, f"attempt {reply.attempt}" if reply.attempt else "")


def _with_task(world: World, place: tuple[int, int], task: Task) -> World:
    number, slot = place
    instance = world.instances[number]
    tasks = (*instance.tasks[:slot], task, *instance.tasks[slot + 1 :])
    return _with_instance(world, number, instance._replace(tasks=tasks))


def _with_instance(world: World, number: int, instance: Instance) -> World:
    return world._replace(instances=(*world.instances[:number], instance, *world.instances[number + 1 :]))


def _spend(world: World, misfortune: str, count: int = 1) -> World:
    left = getattr(world.budget, misfortune) - count
    return world._replace(budget=world.budget._replace(**{misfortune: left}))


def _set(numbers: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    return (*numbers[:index], value, *numbers[index + 1 :])


def _added(numbers: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    return _set(numbers, index, numbers[index] + value)
