//! A few bad ones among many.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use super::*;

const MANY: usize = 200;
/// One in twenty.
const EVERY: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn lists_stay_complete_while_one_in_twenty_fails() {
    let world = World::new(|config, _| {
        // Few at once: the hung ones could block all of them.
        config.concurrency = 4;
    });
    let bad = [
        Kind::Hung,
        Kind::HalfWay,
        Kind::Slow(Duration::from_secs(5)),
        Kind::Lying(b"\0\0\0".to_vec()),
        Kind::Endless,
        Kind::Flapping,
        Kind::Closing,
    ];
    let mut kubelets = Vec::new();
    for index in 0..MANY {
        let name = format!("node-{index:03}");
        kubelets.push(world.kubelet(&name, Kind::Good).await);
    }
    soon("all are well", || {
        world.nodes().len() == MANY && world.pods().len() == MANY
    })
    .await;
    let mut failing = BTreeSet::new();
    for (kubelet, kind) in kubelets.iter().step_by(EVERY).zip(bad.iter().cycle()) {
        kubelet.becomes(kind.clone());
        failing.insert(kubelet.state.name.clone());
    }
    let before = world.telemetry.totals();
    soon("some fail", || {
        world.telemetry.totals().failed >= before.failed + 15
    })
    .await;
    // What is well is fresh again and again, and what is not is still there as it was.
    let stale = || {
        let fresh_after = now() - 4 * RESOLUTION.as_nanos() as i64;
        let (mut seen, mut stale) = (0, 0);
        world.view.visit_nodes(&Selector::default(), &mut |row| {
            seen += 1;
            stale += usize::from(row.usage.at < fresh_after && !failing.contains(row.name));
        });
        assert_eq!(seen, MANY);
        stale
    };
    soon("what is well is fresh", || stale() == 0).await;
    assert_eq!(world.pods().len(), MANY);
    // On a busy machine a round may be late, but not for ever.
    soon("rounds end in time", || {
        world.telemetry.is_timely(Instant::now())
    })
    .await;
    // Hung ones are asked ever less often.
    let (hung, well) = (&kubelets[0], &kubelets[1]);
    soon("the difference shows", || {
        well.requests() > hung.requests() + 3
    })
    .await;
}

fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(now.as_nanos()).unwrap()
}
