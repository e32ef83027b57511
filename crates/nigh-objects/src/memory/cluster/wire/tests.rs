use nigh_terms::Epoch;

use super::*;

/// What the caller of a home learns of an error there.
fn told(error: ObjectError) -> ObjectError {
    let sent = encode(&Err::<(), _>(WireError::from(error))).unwrap();
    decode::<Result<(), WireError>>(&sent).unwrap().unwrap_err().into()
}

#[test]
fn a_reply_of_an_earlier_build_is_read() {
    #[derive(Serialize)]
    struct EarlierReply {
        reply: Option<Reply<ObjectId>>,
        outcome: Result<Option<Version>, WireError>,
        newest: Version,
    }
    let sent = encode(&EarlierReply { reply: None, outcome: Ok(None), newest: Version::OUTSIDE }).unwrap();
    assert!(!decode::<WriteReply>(&sent).unwrap().uncached);
}

#[test]
fn who_asks_a_home_elsewhere_learns_whether_to_ask_again_as_at_a_home_here() {
    let (store, operation, reason) = ("swift", "put", String::new());
    let unreached = ObjectError::StoreUnreached { store, operation, reason: reason.clone() };
    assert!(matches!(told(unreached), ObjectError::StoreUnreached { .. }));
    let silent = ObjectError::StoreSilent { store, operation, reason };
    assert!(matches!(told(silent), ObjectError::StoreSilent { .. }));
    assert!(matches!(told(ObjectError::OutcomeUnknown("x")), ObjectError::OutcomeUnknown(_)));
    for silent in
        [LedgerError::Failed("restart the node".to_owned()), LedgerError::Fenced { shard: ShardId(0), held: Epoch(1) }]
    {
        let ObjectError::Busy(why) = told(silent.into()) else { panic!("a journal that gives no answer") };
        assert!(!why.contains("restart"), "{why}");
    }
}
