//! Which invocations used an object: by the records of one node, and of several nodes together.

use std::collections::BTreeMap;

use nigh_engine::RegistryError;
use nigh_invoke::activation_log::{ActivationLog, ActivationQuery};
use nigh_schedule::activation::Activation;
use nigh_terms::{BucketName, FunctionName, InvocationId, Namespace, ObjectKey, Timestamp};
use serde::{Deserialize, Serialize};

/// The newest records of a node in which the users of one object are looked for.
const RECORDS_READ: usize = 500;
/// The most users of one object; those of older invocations are left out.
const USERS_MAX: usize = 50;

/// How an invocation used an object: its last call for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ObjectUser {
    function: FunctionName,
    ended: Timestamp,
    /// `hit`, `miss`, `past`, `metadata`, `write`, `delete` or `failed`.
    served: String,
    bytes: u64,
    took_us: u64,
}

/// The last users of one object, by the ids of their invocations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct ObjectUsers(BTreeMap<InvocationId, ObjectUser>);

impl ObjectUsers {
    /// The users in the newest records of `log`.
    pub(crate) async fn in_log(
        log: &ActivationLog,
        namespace: &Namespace,
        bucket: &BucketName,
        key: &ObjectKey,
    ) -> Result<Self, RegistryError> {
        let query = ActivationQuery { namespace: Some(namespace.clone()), ..ActivationQuery::default() };
        Ok(Self::of(&log.list(query, RECORDS_READ).await?, bucket, key))
    }

    fn of(records: &[Activation], bucket: &BucketName, key: &ObjectKey) -> Self {
        let mut users = Self::default();
        for record in records {
            let is_it =
                |bucket_of: &str, key_of: Option<&str>| bucket_of == bucket.as_str() && key_of == Some(key.as_str());
            let Some(call) = record.data_calls.iter().rev().find(|call| is_it(&call.bucket, call.key.as_deref()))
            else {
                continue;
            };
            let user = ObjectUser {
                function: record.function.clone(),
                ended: record.ended(),
                served: call.served.clone(),
                bytes: call.bytes,
                took_us: call.took_us,
            };
            users.add(record.id, user);
        }
        users
    }

    fn add(&mut self, id: InvocationId, user: ObjectUser) {
        // Attempts of one event have one id, and may have run on several nodes: the last one is shown.
        if self.0.get(&id).is_none_or(|known| known.ended < user.ended) {
            self.0.insert(id, user);
        }
        if self.0.len() > USERS_MAX {
            self.0.pop_first();
        }
    }

    /// Adds those of another node.
    pub(crate) fn join(&mut self, others: Self) {
        for (id, user) in others.0 {
            self.add(id, user);
        }
    }
}

#[cfg(test)]
mod tests {
    use nigh_schedule::activation::{DataCallRecord, Outcome};
    use nigh_schedule::test_support::activation;

    use super::*;

    fn call(key: &str, served: &str) -> DataCallRecord {
        DataCallRecord {
            served: served.to_owned(),
            bucket: "inbox".to_owned(),
            key: Some(key.to_owned()),
            bytes: 9,
            began_us: 0,
            took_us: 5,
            under_way: None,
        }
    }

    fn caller(calls: Vec<DataCallRecord>) -> Activation {
        Activation { data_calls: calls, ..activation("one", "reader", Outcome::Answered) }
    }

    fn users(records: &[Activation]) -> ObjectUsers {
        ObjectUsers::of(records, &BucketName::new("inbox").unwrap(), &ObjectKey::new("b").unwrap())
    }

    #[test]
    fn the_users_of_an_object_are_the_invocations_that_called_for_it() {
        let (other, reader) = (caller(Vec::new()), caller(vec![call("a", "hit"), call("b", "miss")]));
        let ObjectUsers(found) = users(&[other, reader.clone()]);
        assert_eq!(found.len(), 1);
        assert_eq!((found[&reader.id].served.as_str(), found[&reader.id].bytes), ("miss", 9));
    }

    #[test]
    fn the_users_of_several_nodes_are_one_list_of_the_last_each_once_by_its_last_attempt() {
        let records: Vec<Activation> = (0..USERS_MAX + 2).map(|_| caller(vec![call("b", "hit")])).collect();
        let last = &records[USERS_MAX + 1];
        let retried =
            Activation { start: Timestamp(last.start.0 + 1), data_calls: vec![call("b", "write")], ..last.clone() };
        let (here, there) = records.split_at(2);
        let mut all = users(here);
        all.join(users(&[retried]));
        all.join(users(there));
        let written = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<ObjectUsers>(&written).unwrap(), all);
        let ObjectUsers(all) = all;
        assert_eq!((all.len(), all[&last.id].served.as_str()), (USERS_MAX, "write"));
        assert!(here.iter().all(|old| !all.contains_key(&old.id)), "the oldest are left out");
    }
}
