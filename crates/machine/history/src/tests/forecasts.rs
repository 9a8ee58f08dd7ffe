//! What is foreseen from what was used.

use plimsoll_predict::Amount;

use super::super::Config;
use super::{Rig, old_pod};

#[test]
fn forecasts_learn_from_what_was_used() {
    let mut rig = Rig::new(Config::default());
    let workloads = old_pod(&rig);
    rig.workloads = workloads.clone();
    let nothing = rig.forecast(&workloads);
    assert_eq!((nothing.amount.cpu, nothing.amount.memory), (0.0, 0.0));
    rig.run(130);
    let found = rig.forecast(&workloads);
    // 3 cores requested; production and the system need 1.5 and 0.5 and a tenth more, within a bucket's width.
    assert!((0.55..=0.8).contains(&found.amount.cpu), "{found:?}");
    assert!((2.2..=2.45).contains(&found.peak.cpu), "{found:?}");
    // The system needs more memory than was requested.
    assert_eq!(found.amount.memory, 0.0);
    // A young pod may still grow.
    let young = super::workloads(rig.now());
    assert_eq!(rig.forecast(&young).amount.cpu, 0.0);
}

#[test]
fn allocatable_is_the_limit() {
    let mut rig = Rig::new(Config::default());
    let mut workloads = old_pod(&rig);
    workloads.allocatable = Some(Amount {
        cpu: 2.5,
        memory: 16.0 * 1024.0 * 1024.0 * 1024.0,
    });
    rig.workloads = workloads.clone();
    rig.run(130);
    let found = rig.forecast(&workloads);
    assert!(
        (found.amount.cpu - (2.5 - found.peak.cpu)).abs() < 1e-9,
        "{found:?}"
    );
}
