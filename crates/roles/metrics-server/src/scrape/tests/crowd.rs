//! A few bad ones among many.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;

const MANY: u64 = 400;
/// One in twenty.
const EVERY: usize = 20;
/// A debug build on a busy machine has to keep up.
const INTERVAL: Duration = Duration::from_secs(2);

/// As many as there are descriptors for: each takes one to listen and two for a connection, while a new one may be made
/// before the old one is gone.
fn many() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, raised).unwrap();
    let room = limit.maximum.unwrap_or(u64::MAX).saturating_sub(500) / 5;
    usize::try_from(MANY.min(room)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_stay_complete_while_one_in_twenty_fails() {
    let world = World::every(INTERVAL, |config, settings| {
        // However late a starved machine is: what is shown here is that failing costs nobody their figures.
        settings.keep = Duration::from_secs(300);
        // Few at once: the hung ones could block all of them.
        config.concurrency = 8;
        config.request_timeout = Duration::from_millis(1500);
    });
    let bad = [
        Kind::Hung,
        Kind::HalfWay,
        Kind::Slow(Duration::from_secs(10)),
        Kind::Lying(b"\0\0\0".to_vec()),
        Kind::Endless,
        Kind::Bomb,
        Kind::NoTls,
        Kind::Flapping,
        Kind::Closing,
    ];
    // One certificate does for all of them.
    let tls = world.authority.acceptor(&["127.0.0.1"]);
    let many = many();
    let mut kubelets = Vec::new();
    for index in 0..many {
        let name = format!("node-{index:04}");
        kubelets.push(world.kubelet_with(&name, Kind::Good, tls.clone()).await);
    }
    soon("all are well", || {
        world.nodes().len() == many && world.pods().len() == many
    })
    .await;
    let mut failing = BTreeSet::new();
    for (kubelet, kind) in kubelets.iter().step_by(EVERY).zip(bad.iter().cycle()) {
        kubelet.becomes(kind.clone());
        // What goes wrong with connections needs new ones to show.
        kubelet.hang_up();
        failing.insert(kubelet.state.name.clone());
    }
    let before = world.telemetry.totals();
    soon("some fail", || {
        world.telemetry.totals().failed >= before.failed + failing.len() as u64
    })
    .await;
    // What is well is fresh again and again, and what is not is still there as it was.
    let stale = || {
        let fresh_after = now() - 4 * INTERVAL.as_nanos() as i64;
        let (mut seen, mut stale) = (0, 0);
        world.view.visit_nodes(&Selector::default(), &mut |row| {
            seen += 1;
            stale += usize::from(row.usage.at < fresh_after && !failing.contains(row.name));
        });
        assert_eq!(seen, many, "last good figures stay");
        stale
    };
    soon("what is well is fresh", || stale() == 0).await;
    assert_eq!(world.pods().len(), many);
    // On a busy machine a round may be late, but not for ever.
    soon("rounds end in time", || {
        world.telemetry.is_timely(Instant::now())
    })
    .await;
    for reason in [
        Reason::Timeout,
        Reason::Malformed,
        Reason::TooLarge,
        Reason::Tls,
    ] {
        soon("it is counted for what it is", || {
            world.failures(reason) > 0
        })
        .await;
    }
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
