use super::*;

const ID: TransactionId = TransactionId(1);
const FIRST: ShardId = ShardId(0);
const OTHER: ShardId = ShardId(1);

fn home(shard: ShardId) -> TransactionHome {
    TransactionHome::begin(shard, [], None)
}

#[test]
fn a_transaction_of_one_shard_has_one_record_and_ends_when_it_is_trimmed() {
    use TransactionInput as In;
    use TransactionOutput as Out;
    let mut home = home(FIRST);
    let ticket = Ticket(7);
    assert_eq!(home.step(ID, In::Prepare { decider: FIRST, ticket }), [Out::Prepared(ticket)]);
    let none = BTreeSet::new();
    let record = TransactionRecord::Decided { participants: none.clone() };
    assert_eq!(home.step(ID, In::Decide { ticket, participants: none }), [Out::Append(record)]);
    assert_eq!(home.step(ID, In::Appended), [Out::Apply]);
    assert_eq!(home.step(ID, In::Applied), [Out::Committed, Out::Trim]);
    assert_eq!(home.step(ID, In::Trimmed), [Out::Release]);
    assert_eq!(home.open().count(), 0);
}

#[test]
fn who_is_asked_about_what_it_only_holds_never_commits_it() {
    use TransactionInput as In;
    use TransactionOutput as Out;
    let mut home = home(FIRST);
    let ticket = Ticket(7);
    assert_eq!(home.step(ID, In::Prepare { decider: FIRST, ticket }), [Out::Prepared(ticket)]);
    assert_eq!(home.step(ID, In::Ask), [Out::Release, Out::Answer(Some(Outcome::Aborted))]);
    let decide = In::Decide { ticket, participants: [OTHER].into() };
    assert_eq!(home.step(ID, decide), [Out::Refused]);
    assert_eq!(home.step(ID, In::Ask), [Out::Answer(Some(Outcome::Aborted))]);
}

#[test]
fn a_home_that_begins_carries_on_what_its_ledger_has() {
    use TransactionOutput as Out;
    let decided = TransactionRecord::Decided { participants: [OTHER].into() };
    let first = TransactionHome::begin(FIRST, [(ID, decided)], None);
    assert_eq!(first.resume(ID), [Out::Tell(OTHER, Outcome::Committed), Out::Apply]);
    let prepared = TransactionRecord::Prepared { decider: FIRST };
    let other = TransactionHome::begin(OTHER, [(ID, prepared)], None);
    assert_eq!(other.resume(ID), [Out::Ask(FIRST)]);
}

#[test]
fn a_coordinator_aborts_what_one_refuses_and_knows_not_what_came_of_a_decision_without_an_answer() {
    use CoordinatorInput as In;
    use CoordinatorOutput as Out;
    let shards = [FIRST, OTHER].into();
    let (mut coordinator, asked) = Coordinator::begin(&shards);
    assert_eq!(asked, [Out::Prepare(FIRST)]);
    assert_eq!(coordinator.step(In::Prepared(Ticket(7))), [Out::Prepare(OTHER)]);
    let mut lost = coordinator.clone();
    let aborted = [Out::Abort(FIRST), Out::Abort(OTHER), Out::Over(Some(Outcome::Aborted))];
    assert_eq!(coordinator.step(In::Refused), aborted);
    let decide = Out::Decide { shard: FIRST, ticket: Ticket(7), participants: [OTHER].into() };
    assert_eq!(lost.step(In::Prepared(Ticket::default())), [decide]);
    assert_eq!(lost.step(In::Lost), [Out::Over(None)]);
    assert!(lost.is_over() && lost.step(In::Committed).is_empty());
}
