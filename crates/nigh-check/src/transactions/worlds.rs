//! The worlds of transactions that are explored, and the rules that are left out in them.

use nigh_protocol::TransactionRule;

/// The bounds of a world.
#[derive(Clone, Copy, Debug)]
pub struct TransactionWorldConfig {
    /// The world's name.
    pub name: &'static str,
    /// What the world tests.
    pub about: &'static str,
    pub(super) shards: u16,
    pub(super) crashes: u8,
    pub(super) lost: u8,
    pub(super) doubled: u8,
    pub(super) without: Option<TransactionRule>,
}

/// The worlds in which no promise is broken.
#[must_use]
pub fn transaction_configurations() -> Vec<TransactionWorldConfig> {
    let bounds = |name, about, shards, crashes, lost, doubled| TransactionWorldConfig {
        name,
        about,
        shards,
        crashes,
        lost,
        doubled,
        without: None,
    };
    vec![
        bounds("transaction-one-shard", "one shard; it crashes twice", 1, 2, 1, 1),
        bounds("transaction-crashes", "two shards, which crash twice", 2, 2, 0, 0),
        bounds("transaction-messages", "two shards; one crashes, messages are lost and doubled", 2, 1, 1, 1),
        bounds("transaction-three-shards", "three shards; coordinator, ledgers and others strike", 3, 0, 0, 0),
    ]
}

/// A mutation: a rule left out, and the world that notices.
#[derive(Clone, Copy, Debug)]
pub struct WeakenedTransaction {
    /// The rule that is left out.
    pub rule: TransactionRule,
    /// What goes wrong.
    pub about: &'static str,
    /// The world that notices.
    pub configuration: TransactionWorldConfig,
}

/// One mutation for each rule.
#[must_use]
pub fn weakened_transactions() -> Vec<WeakenedTransaction> {
    let weakened = |rule| {
        let about = match rule {
            TransactionRule::RecordBeforePrepared => "a home that crashes forgets that it has answered prepared",
            TransactionRule::AskedForgets => "a shard hears that the transaction is aborted, and then it is decided",
            TransactionRule::DecisionNamesItsHolding => {
                "a decision is taken for write locks that were released in between"
            }
            TransactionRule::AllApplyBeforeAnswer => "the transaction is acknowledged, and a reader sees the old state",
            TransactionRule::DecisionOutlivesParticipants => {
                "a shard that missed the decision is told that there is none"
            }
            TransactionRule::PreparedWaits => "a prepared shard aborts a decided transaction",
            TransactionRule::TurnsOutlastTheRecord => "a home that crashes applies the transaction over later writes",
        };
        let configuration = TransactionWorldConfig {
            name: "transaction-weakened",
            about,
            shards: 2,
            crashes: 1,
            lost: 1,
            doubled: 1,
            without: Some(rule),
        };
        WeakenedTransaction { rule, about, configuration }
    };
    TransactionRule::ALL.into_iter().map(weakened).collect()
}
