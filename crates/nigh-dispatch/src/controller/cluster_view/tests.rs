use nigh_engine::{Availability, Presence};
use nigh_terms::Incarnation;

use super::*;
use nigh_functions::test_support::function;

fn present(number: u32, life: u64, duty: Duty) -> PresentMember {
    let presence = Presence::new(NodeNumber(number), "127.0.0.1:1", [duty]);
    PresentMember { node: NodeId(format!("n{number}")), incarnation: Incarnation(life), presence }
}

fn report(number: u32, life: u64, serial: u64) -> ReportHead {
    let vacancy = Vacancy {
        memory: ByteSize::gib(1),
        memory_free: ByteSize::gib(1),
        sandboxes_free: 4,
        invocations_free: 4,
        processors: 2,
        ..Vacancy::default()
    };
    let from = Member { node: NodeNumber(number), incarnation: Incarnation(life) };
    let (node, holdings) = (NodeId(format!("n{number}")), HoldingsNews::default());
    ReportHead { node, from, serial, vacancy, covered: Token::empty(), holdings }
}

fn roles(view: &ClusterView) -> Vec<NodeRole> {
    view.views(|_, _| 0).into_iter().map(|node| node.role).collect()
}

#[test]
fn only_a_living_node_that_has_reported_in_this_life_runs_anything() {
    let mut view = ClusterView::default();
    view.members(&[present(1, 1, Duty::Run), present(2, 1, Duty::Controller)]);
    assert_eq!(roles(&view), [NodeRole::Draining], "it has not reported; the other runs nothing");
    assert!(!view.report(report(1, 2, 1)) && view.report(report(1, 1, 2)) && !view.report(report(1, 1, 1)));
    assert_eq!(roles(&view), [NodeRole::Worker]);
    view.members(&[]);
    assert_eq!(roles(&view), [NodeRole::Draining]);
    view.members(&[present(1, 2, Duty::Run)]);
    assert_eq!(roles(&view), [NodeRole::Draining], "a new life has said nothing");
}

#[test]
fn a_cordoned_node_gets_no_invocations_and_gets_them_again_when_it_is_uncordoned() {
    let mut view = ClusterView::default();
    let node = |number, availability| {
        let member = present(number, 1, Duty::Run);
        PresentMember { presence: member.presence.with_availability(availability), ..member }
    };
    let other = || node(2, Availability::Available);
    view.members(&[node(1, Availability::Cordoned), other()]);
    assert!(view.report(report(1, 1, 1)) && view.report(report(2, 1, 1)), "its reports are heard");
    assert_eq!(roles(&view), [NodeRole::Draining, NodeRole::Worker]);
    view.members(&[node(1, Availability::Available), other()]);
    assert_eq!(roles(&view), [NodeRole::Worker; 2]);
    view.members(&[node(1, Availability::Draining), other()]);
    assert_eq!(roles(&view), [NodeRole::Draining, NodeRole::Worker]);
    view.members(&[node(1, Availability::Draining), node(2, Availability::Cordoned)]);
    assert_eq!(roles(&view), [NodeRole::Worker; 2], "if none takes work, all do");
}

#[test]
fn it_is_known_who_holds_what_until_that_life_of_the_node_is_over() {
    let mut view = ClusterView::default();
    view.members(&[present(1, 1, Duty::Run), present(2, 1, Duty::Run)]);
    let objects = [NamePrint(7 << 32 | 1), NamePrint(9 << 32 | 2)];
    let says = |anew, changes: &[(NamePrint, Option<u64>)]| HoldingsNews {
        anew,
        changes: changes.iter().map(|(object, bytes)| (object.0, *bytes)).collect(),
    };
    let first = says(true, &[(objects[0], Some(1 << 20)), (objects[1], Some(1 << 10))]);
    view.report(ReportHead { holdings: first, ..report(1, 1, 1) });
    let known = view.inputs(&objects);
    assert_eq!((known.all().objects, known.by_node().iter().count()), (2, 1));
    let other = view.slots()[1].member;
    view.left(other, [(objects[0], 1 << 20)]);
    view.report(ReportHead { holdings: says(false, &[(objects[0], None)]), ..report(1, 1, 2) });
    let held = |view: &ClusterView| {
        view.inputs(&objects).by_node().iter().map(|(node, held)| (node.0, held.objects)).collect::<Vec<_>>()
    };
    assert_eq!(held(&view), [(0, 1), (1, 1)]);
    view.report(ReportHead { holdings: says(true, &[]), ..report(1, 1, 3) });
    view.members(&[present(1, 1, Duty::Run), present(2, 2, Duty::Run)]);
    assert_eq!(held(&view), []);
}

#[test]
fn what_was_sent_since_the_report_is_reckoned_in() {
    let (mut view, function) = (ClusterView::default(), function("f"));
    view.members(&[present(1, 1, Duty::Run)]);
    view.report(report(1, 1, 1));
    let member = view.slots()[0].member;
    view.sent(NodeIndex(0), &function, Offer::Cold);
    let node = view.views(|_, _| 0)[0];
    assert_eq!((node.running, node.invocations_free, node.sandboxes_free), (1, 3, 3));
    assert_eq!(node.memory_free, ByteSize::gib(1).saturating_sub(function.memory));
    assert_eq!(view.warm(&function).iter().count(), 0);
    view.over(member, &function, true);
    assert_eq!(view.warm(&function).get(NodeIndex(0)).map(|warm| warm.sandboxes), Some(1), "before the next report");
    view.sent(NodeIndex(0), &function, Offer::Warm);
    assert_eq!(view.warm(&function).iter().count(), 0);
    view.report(report(1, 1, 2));
    let node = view.views(|_, _| 0)[0];
    assert_eq!((node.running, node.sandboxes_free), (1, 4), "it runs until its end is told");
}
