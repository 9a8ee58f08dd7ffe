//! What is foreseen from what was used.

use std::sync::Arc;

use super::super::Config;
use super::{Rig, old_pod};
use crate::states::Node;

#[test]
fn forecasts_learn_from_what_was_used() {
    let mut rig = Rig::new(Config::default());
    let known = old_pod(&rig);
    rig.board.change(|board| *board = known.clone());
    let nothing = rig.forecast(&known);
    assert_eq!((nothing.amount.cpu, nothing.amount.memory), (0.0, 0.0));
    rig.run(130);
    let found = rig.forecast(&known);
    // 3 cores requested; production and the system need 1.5 and 0.5 and a tenth more, within a bucket's width.
    assert!((0.55..=0.8).contains(&found.amount.cpu), "{found:?}");
    assert!((2.2..=2.45).contains(&found.peak.cpu), "{found:?}");
    // The system needs more memory than was requested.
    assert_eq!(found.amount.memory, 0.0);
    // A young pod may still grow.
    let young = super::known(rig.now());
    assert_eq!(rig.forecast(&young).amount.cpu, 0.0);
}

#[test]
fn the_original_of_allocatable_is_the_limit() {
    let mut rig = Rig::new(Config::default());
    let mut known = old_pod(&rig);
    let mut node = Node::clone(known.node.as_ref().unwrap());
    let raw = r#"{"cpu":"2500m","memory":"16Gi"}"#;
    node.annotations = [("node.koordinator.sh/raw-allocatable".into(), raw.into())].into();
    known.node = Some(Arc::new(node));
    rig.board.change(|board| *board = known.clone());
    rig.run(130);
    let found = rig.forecast(&known);
    assert!(
        (found.amount.cpu - (2.5 - found.peak.cpu)).abs() < 1e-9,
        "{found:?}"
    );
}
