//! Invocations by the gate, on all nodes at once: what one has written, the next one reads, wherever.

use std::time::Duration;

use nigh_protocol::Dispatch;
use nigh_terms::{FunctionName, InvocationId, Principal, SandboxId, Token};

use crate::world::{World, bucket, key, request, who};

const WITHIN: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_of_invocations_sees_its_own_writes_on_every_node() {
    let Some(world) = World::start("a_chain_of_invocations_sees_its_own_writes_on_every_node", 3).await else {
        return;
    };
    let token = world.nodes[&0].memory.newest_of_all(&world.epochs()).await.unwrap();
    let chains = (0..6_u32).map(|chain| {
        let nodes: Vec<_> = world.nodes.values().map(|node| (node.memory.clone(), node.member)).collect();
        let mut token: Token = token.clone();
        tokio::spawn(async move {
            for step in 0..30_u32 {
                let (memory, member) = &nodes[((chain + step * 7) % 3) as usize];
                let (namespace, id) = (who().namespace, InvocationId::now());
                let dispatch = Dispatch { to: *member, token: token.clone() };
                memory.begin_dispatched(&namespace, id, dispatch).await.unwrap();
                let function = FunctionName::new("chain").unwrap();
                let inside = Principal::inside(namespace, function, SandboxId::random(), id);
                for n in 0..3 {
                    let name = key(&format!("c{chain}-{n}"));
                    if step > 0 {
                        let got = memory.get(&inside, &bucket(), &name, Default::default()).await.unwrap();
                        let bytes: Vec<bytes::Bytes> = futures::TryStreamExt::try_collect(got.body).await.unwrap();
                        let read: u32 = String::from_utf8(bytes.concat()).unwrap().parse().unwrap();
                        assert_eq!(read, step - 1, "chain {chain}, step {step}, object {n}");
                    }
                    memory.put(&inside, &bucket(), &name, request(step.to_string().as_bytes())).await.unwrap();
                }
                token.join(&memory.end_invocation(id, WITHIN).await);
            }
        })
    });
    let chains: Vec<_> = chains.collect();
    for chain in chains {
        chain.await.unwrap();
    }
    world.end().await;
}
