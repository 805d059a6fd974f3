"""A group whose members come, go, fall silent and repeat themselves, while its coordinator dies and its disk fills up.

Clients follow the protocol as a consumer does: they ask for an id, join, sync, send heartbeats, commit, and begin anew
when they are told to. Whatever happens in whatever order, one generation has one leader and one set of assignments, no
answered commit is lost, and whoever asks is answered.
"""

from __future__ import annotations

import collections
import itertools
from dataclasses import dataclass

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kio.schema.errors import ErrorCode

from tests.support.group_rig import Answers, Rig
from tierlog.broker.groups.group import GroupState
from tierlog.broker.groups.group_config import GroupConfig
from tierlog.broker.groups.members import JoinAnswer, SyncAnswer
from tierlog.errors import StoreError

NONE = ErrorCode.none
PARTITIONS = 4
CLIENTS = st.integers(0, 4)
INSTANCES = st.sampled_from([None, None, "a", "b"])
#: The last is the answer to a commit for a group of which nothing was written before the coordinator died.
BEGIN_ANEW = {ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id, ErrorCode.group_id_not_found}
JOIN_AGAIN = {
    ErrorCode.illegal_generation,
    ErrorCode.rebalance_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
}


@dataclass(eq=False)
class Client:
    """A consumer.

    Attributes:
        owns: (generation, nonce of the leader, partitions), as long as it believes in it.
    """

    instance_id: str | None
    protocols: tuple[tuple[str, bytes], ...]
    member_id: str = ""
    is_silent: bool = False
    joining: Answers[JoinAnswer] | None = None
    joined: JoinAnswer | None = None
    syncing: Answers[SyncAnswer] | None = None
    owns: tuple[int, str, tuple[int, ...]] | None = None

    def lose(self, *, all_of_it: bool) -> None:
        """Stop reading; a new id is needed, or another generation alone."""
        self.joining = self.joined = self.syncing = self.owns = None
        if all_of_it:
            self.member_id = ""


class GroupMachine(RuleBasedStateMachine):
    """One group of at most a few clients."""

    def __init__(self) -> None:
        super().__init__()
        self.clients: list[Client] = []
        self.asked: list[Answers] = []
        self.nonces = itertools.count()
        self.offsets = itertools.count(1)
        self.answered: dict[int, int] = {}
        self.commits: list[tuple[int, int, Answers[ErrorCode]]] = []
        self.assigned: dict[int, set[str]] = collections.defaultdict(set)
        # By generation: the members, or their instances, that this coordinator has answered that they lead.
        self.leaders: dict[int, set[str]] = collections.defaultdict(set)

    @initialize(
        delay_ms=st.sampled_from([0, 100, 3000]),
        max_size=st.sampled_from([100, 100, 2]),
        instances=st.lists(INSTANCES, min_size=1, max_size=3),
    )
    def begin(self, delay_ms: int, max_size: int, instances: list[str | None]) -> None:
        self.rig = Rig(
            GroupConfig(initial_rebalance_delay_ms=delay_ms, max_size=max_size, new_member_join_timeout_ms=60_000),
            is_prompt=False,
        )
        for instance in instances:
            self.start(instance, ("range", "sticky"))
        self.all_come_to_rest(8)

    # ------------------------------------------------------------ what clients do

    @rule(
        instance=INSTANCES,
        protocols=st.sampled_from([("range",), ("range", "sticky"), ("sticky", "range")]),
    )
    @precondition(lambda self: len(self.clients) < 5)
    def start(self, instance: str | None, protocols: tuple[str, ...]) -> None:
        self.clients.append(Client(instance, tuple((name, b"") for name in protocols)))

    def _one(self, index: int) -> Client:
        return self.clients[index % len(self.clients)]

    @rule(index=CLIENTS)
    @precondition(lambda self: self.clients)
    def go_on(self, index: int) -> None:
        """One client looks at what it was told, and does what comes next."""
        if not self._one(index).is_silent:
            self._next(self._one(index))

    @rule()
    def all_go_on(self) -> None:
        for _ in range(3):
            for client in self.clients:
                if not client.is_silent:
                    self._next(client)
            self.rig.store.flush()

    @rule(rounds=st.integers(3, 8))
    def all_come_to_rest(self, rounds: int) -> None:
        """Long enough for all who go on to be in one generation."""
        for _ in range(rounds):
            self.all_go_on()
            self.rig.advance(1.1)
            self.check_all()

    def check_all(self) -> None:
        self.answered_commits_are_there()
        self.a_generation_has_one_leader()
        self.a_partition_has_one_owner()
        self.the_group_holds_together()

    @rule(index=CLIENTS)
    @precondition(lambda self: any(not client.is_silent for client in self.clients))
    def fall_silent(self, index: int) -> None:
        self._one(index).is_silent = True

    @rule()
    @precondition(lambda self: any(client.is_silent for client in self.clients))
    def come_back(self) -> None:
        """Clients that hung go on in what they believe."""
        for client in self.clients:
            client.is_silent = False

    @rule(index=CLIENTS)
    @precondition(lambda self: self.clients)
    def join_again(self, index: int) -> None:
        """A client lost the answer to its join and asks again, or sees other partitions."""
        client = self._one(index)
        client.syncing = client.owns = client.joined = None
        self._join(client)

    @rule(index=CLIENTS)
    @precondition(lambda self: self.clients)
    def restart_client(self, index: int) -> None:
        """A client's process dies and begins anew; the old one goes on a little."""
        client = self._one(index)
        if len(self.clients) < 5:
            self.clients.append(Client(client.instance_id, client.protocols))
        else:
            client.lose(all_of_it=True)

    @rule(index=CLIENTS, says_so=st.booleans())
    @precondition(lambda self: self.clients)
    def stop(self, index: int, says_so: bool) -> None:
        client = self._one(index)
        self.clients.remove(client)
        if says_so and client.member_id:
            answers = Answers[tuple[ErrorCode, list[ErrorCode]]]()
            member = (client.member_id, client.instance_id, "")
            self.rig.coordinator.leave("readers", [member], lambda error, each: answers((error, each)))
            self.asked.append(answers)

    @rule(index=CLIENTS, partition=st.integers(0, PARTITIONS - 1))
    @precondition(lambda self: any(client.joined for client in self.clients))
    def commit(self, index: int, partition: int) -> None:
        readers = [client for client in self.clients if client.joined]
        client = readers[index % len(readers)]
        offset = next(self.offsets)
        answers = self.rig.commit(
            offset, client.joined, place=("orders", partition), group_instance_id=client.instance_id
        )
        if answers:
            assert answers.only is not NONE, "answered before it was written"
            self._heed(client, answers.only)
        else:
            self.commits.append((partition, offset, answers))

    def _next(self, client: Client) -> None:
        if client.joining is not None:
            if client.joining:
                self._was_joined(client, client.joining.only)
        elif client.joined is None:
            self._join(client)
        elif client.syncing is not None:
            if client.syncing:
                self._was_synced(client, client.joined, client.syncing.only)
        elif client.owns is None:
            self._sync(client, client.joined)
        else:
            self._heed(client, self.rig.heartbeat(client.joined, instance_id=client.instance_id))

    def _join(self, client: Client) -> None:
        client.joining = self.rig.join(
            client.member_id,
            group_instance_id=client.instance_id,
            protocols=client.protocols,
            rebalance_timeout_ms=20_000,
            must_know_member_id=client.instance_id is None,
        )
        self.asked.append(client.joining)

    def _was_joined(self, client: Client, answer: JoinAnswer) -> None:
        client.joining = None
        if answer.error is ErrorCode.member_id_required:
            client.member_id = answer.member_id
        elif answer.error is NONE:
            client.joined, client.member_id, client.owns = answer, answer.member_id, None
            if answer.leader == answer.member_id and not answer.skip_assignment:
                self.leaders[answer.generation_id].add(client.instance_id or answer.member_id)
        elif answer.error is ErrorCode.group_max_size_reached:
            client.lose(all_of_it=True)
        else:
            self._heed(client, answer.error)

    def _sync(self, client: Client, joined: JoinAnswer) -> None:
        given: dict[str, bytes] = {}
        if joined.leader == joined.member_id and not joined.skip_assignment:
            nonce = str(next(self.nonces))
            shares: dict[str, list[int]] = {member_id: [] for member_id, _, _ in joined.members}
            for partition, member_id in zip(range(PARTITIONS), itertools.cycle(shares), strict=False):
                shares[member_id].append(partition)
            given = {member_id: f"{nonce}:{','.join(map(str, share))}".encode() for member_id, share in shares.items()}
        client.syncing = self.rig.sync(joined, given, group_instance_id=client.instance_id)
        self.asked.append(client.syncing)

    def _was_synced(self, client: Client, joined: JoinAnswer, answer: SyncAnswer) -> None:
        client.syncing = None
        if answer.error is not NONE:
            self._heed(client, answer.error)
            return
        nonce, _, share = answer.assignment.decode().partition(":")
        partitions = tuple(int(partition) for partition in share.split(",") if partition)
        client.owns = (joined.generation_id, nonce, partitions)

    def _heed(self, client: Client, error: ErrorCode) -> None:
        if error in BEGIN_ANEW:
            client.lose(all_of_it=True)
        elif error in JOIN_AGAIN:
            client.lose(all_of_it=False)
        else:
            assert error is NONE, error

    # ------------------------------------------------------------ what happens to the coordinator

    @rule(seconds=st.sampled_from([0.1, 1, 3, 9, 25]))
    def wait(self, seconds: float) -> None:
        self.rig.advance(seconds)

    @rule(count=st.integers(1, 3))
    def write(self, count: int) -> None:
        self.rig.store.flush(count)

    @rule(is_full=st.booleans())
    def disk(self, is_full: bool) -> None:
        self.rig.store.fault = StoreError("disk full") if is_full else None

    @rule(writes=st.integers(0, 3))
    def crash(self, writes: int) -> None:
        """The coordinator dies; some of what was on its way was written, and nobody told."""
        told = [(answers, len(answers)) for answers in self.asked]
        self._settle_commits()
        self.rig.store.flush(writes)
        self._settle_commits()
        self.rig.restart()
        self.leaders.clear()
        assert all(len(answers) >= count for answers, count in told)
        self.asked.clear()
        self.commits.clear()
        for client in self.clients:  # they see the connection close, and ask again
            client.joining = client.syncing = None

    @rule()
    @precondition(lambda self: self.rig.state() == "Empty" and not self.rig.store.waiting)
    def delete(self) -> None:
        """An administrator deletes the group: what comes after begins anew."""
        deleted = self.rig.delete_group()
        self.rig.store.flush()
        if deleted.only == {"readers": NONE}:
            self.answered.clear()
            self.assigned.clear()
            self.leaders.clear()
            for client in self.clients:
                client.lose(all_of_it=True)

    # ------------------------------------------------------------ what always holds

    def _settle_commits(self) -> None:
        for partition, offset, answers in self.commits:
            if answers and answers.only is NONE:
                self.answered[partition] = max(self.answered.get(partition, 0), offset)
        self.commits = [commit for commit in self.commits if not commit[2]]

    @invariant()
    def answered_commits_are_there(self) -> None:
        self._settle_commits()
        for partition, offset in self.answered.items():
            found = self.rig.committed(place=("orders", partition))
            assert found is not None, f"partition {partition} has lost {offset}"
            assert found >= offset, f"partition {partition} went back from {offset} to {found}"

    @invariant()
    def what_shows_is_stored(self) -> None:
        assert dict(self.rig.coordinator.offsets.of("readers")) == self.rig.store.offsets.get("readers", {})

    @invariant()
    def a_generation_has_one_leader(self) -> None:
        """One coordinator names one. A generation whose assignments were not stored is begun anew after a crash, and
        may have another leader then: what the first one assigns is refused, or not heeded.
        """
        for generation_id, places in self.leaders.items():
            assert len(places) <= 1, f"generation {generation_id} has the leaders {places}"

    @invariant()
    def a_partition_has_one_owner(self) -> None:
        owners: dict[tuple[int, int], str] = {}
        for client in self.clients:
            if client.owns is None:
                continue
            generation_id, nonce, partitions = client.owns
            if nonce:
                self.assigned[generation_id].add(nonce)
                assert len(self.assigned[generation_id]) == 1, "two assignments of one generation were handed out"
            place = client.instance_id or client.member_id
            for partition in partitions:
                assert owners.setdefault((generation_id, partition), place) == place

    @invariant()
    def the_group_holds_together(self) -> None:
        group = self.rig.coordinator.find("readers")
        if group is None:
            return
        members = group.members
        assert group.joined == sum(member.join is not None for member in members.values())
        assert group.pending_sync <= members.keys()
        assert not group.pending_members.keys() & members.keys()
        assert (group.leader_id in members) if members else group.leader_id is None
        static = {member.group_instance_id: key for key, member in members.items() if member.group_instance_id}
        assert group.static_members == static
        assert all(key == member.member_id for key, member in members.items())
        supported = collections.Counter(name for member in members.values() for name, _ in member.protocols)
        assert group._supported == supported
        if group.state is GroupState.EMPTY:
            assert not members
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            assert members
            assert group.protocol_name in supported
            assert not any(member.join for member in members.values()) or self.rig.store.waiting
        for member in members.values():
            assert member.session.is_set or member.is_waiting, "nobody notices when it dies"

    @invariant()
    def memory_is_counted(self) -> None:
        coordinator = self.rig.coordinator
        group = coordinator.find("readers")
        expected = sum(offset.memory_bytes for offset in coordinator.offsets.of("readers").values())
        if group is not None:
            expected += group._memory_bytes
            parts = sum(member.memory_bytes for member in group.members.values())
            parts += sum(1000 + 4 * len(member_id) for member_id in group.pending_members)
            assert group._memory_bytes == 3000 + 4 * len("readers") + parts
        assert coordinator.memory_bytes == expected

    def teardown(self) -> None:
        """Everybody goes: whoever asked has been answered, and the group is empty."""
        if not hasattr(self, "rig"):
            return
        self.rig.store.fault = None
        self.rig.store.flush()
        for _ in range(40):
            self.rig.advance(10)
            self.rig.store.flush()
        assert self.rig.state() in ("Empty", None)
        assert all(self.asked), "somebody was never answered"
        self.answered_commits_are_there()
        self.rig.restart()
        assert self.rig.state() in ("Empty", None), "members that are gone are back"
        self.answered_commits_are_there()


TestGroup = GroupMachine.TestCase
TestGroup.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


@pytest.mark.slow
def test_groups_for_long() -> None:
    """Otherwise what takes many steps to go wrong goes wrong at the user's."""
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        GroupMachine, settings=settings(max_examples=400, stateful_step_count=60, deadline=None)
    )
