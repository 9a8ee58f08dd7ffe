//! Chaos in small: every role works on a real control plane, a part of that fails, and comes back.
//!
//! Asked each time: does each role say what it waits for, does it say so once and not all the time, does it say that it is
//! over, and does it work again without anybody's help? A leader that could not renew its lease ends, as the original does,
//! and is started again here as a kubelet would.

mod fleet;

use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;

use crate::admin;
use crate::plan::{Plan, Tests};
use crate::real::RealCluster;
use fleet::Fleet;

/// What fails, and how it comes back.
struct Fault {
    name: &'static str,
    begin: fn(&mut RealCluster) -> Result<()>,
    end: fn(&mut RealCluster) -> Result<()>,
    /// Who has to notice: one that only follows need not, as long as its watches stay.
    notice: &'static [&'static str],
    /// Any of these has to be in a line of each of them.
    says: &'static [&'static str],
}

const WRITERS: &[&str] = &[fleet::SCHEDULER, fleet::MANAGER, fleet::AGENT];
const ALL_ROLES: &[&str] = &[
    fleet::SCHEDULER,
    fleet::MANAGER,
    fleet::AGENT,
    fleet::METRICS_SERVER,
];
const NO_ANSWER: &[&str] = &["no answer", "does not answer"];

const ALL: &[Fault] = &[
    Fault {
        name: "chaos/api-server-paused",
        begin: |cluster| stop(cluster, Signal::STOP),
        end: |cluster| stop(cluster, Signal::CONT),
        notice: WRITERS,
        says: NO_ANSWER,
    },
    Fault {
        name: "chaos/api-server-killed",
        begin: |cluster| {
            stop(cluster, Signal::KILL)?;
            cluster.apiserver.process.ended(ENDS_WITHIN).map(drop)
        },
        end: RealCluster::apiserver_again,
        notice: ALL_ROLES,
        says: &["refuses connections"],
    },
    Fault {
        name: "chaos/etcd-killed",
        begin: |cluster| {
            cluster.etcd.process.signal(Signal::KILL);
            cluster.etcd.process.ended(ENDS_WITHIN).map(drop)
        },
        end: RealCluster::etcd_again,
        notice: WRITERS,
        says: &["no answer", "does not answer", "etcd"],
    },
    Fault {
        name: "chaos/rights-taken-away",
        begin: |cluster| {
            admin::send(
                &cluster.server,
                "DELETE",
                fleet::GRANT,
                "",
                &serde_json::Value::Null,
            )
            .map(drop)
        },
        end: |cluster| fleet::grant(&cluster.server),
        notice: WRITERS,
        says: &["grant it by RBAC"],
    },
];

const ENDS_WITHIN: Duration = Duration::from_secs(30);

fn stop(cluster: &mut RealCluster, signal: Signal) -> Result<()> {
    cluster.apiserver.process.signal(signal);
    Ok(())
}

pub fn names() -> Vec<String> {
    ALL.iter().map(|fault| fault.name.to_owned()).collect()
}

/// One control plane and one of each role live through all of them.
pub fn play(plan: &Plan<'_>, tests: &Tests<'_>) {
    // The rung says itself that it was left out.
    let Some(programs) = plan.kube_bin else {
        return;
    };
    let mut stands = RealCluster::start(programs).and_then(|cluster| {
        let fleet = Fleet::start(plan, &cluster.server)?;
        Ok((cluster, fleet))
    });
    for fault in ALL.iter().filter(|fault| tests.wants(fault.name)) {
        match &mut stands {
            Ok((cluster, fleet)) => tests.case(fault.name, || befall(fault, cluster, fleet)),
            Err(error) => tests.none_of(&[fault.name], error),
        }
    }
}

fn befall(fault: &Fault, cluster: &mut RealCluster, fleet: &mut Fleet) -> Result<String> {
    fleet.listen();
    (fault.begin)(cluster)?;
    let said = fleet.say(fault.notice, fault.says);
    // Whatever was found, the next fault wants a cluster that works.
    (fault.end)(cluster)?;
    let said = said?;
    fleet.work(&cluster.server).context("once it was over")?;
    fleet.say_that_it_is_over(fault.notice)?;
    let lines = fleet.are_not_noisy()?;
    Ok(format!("{said}; {lines} lines at most"))
}
