//! Whole lives of pods under a server that fails now and then: none is lost, none bound twice, none beyond capacity.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use plimsoll_sched::action::{Action, ActionKind, ActionResult, NominatedNode};
use plimsoll_sched::framework::Profile;
use plimsoll_sched::model::{Names, Pod, ResourceId, decode};
use plimsoll_sched::queue::{QueueConfig, Room};
use plimsoll_sched::{Config, Observation, Scheduler, Time};
use proptest::prelude::*;

struct Server {
    random: fastrand::Rng,
    scheduler: Scheduler,
    now: Time,
    /// As the API server has them.
    pods: BTreeMap<String, Pod>,
    /// Written and not yet answered.
    open: Vec<Action>,
    next: usize,
    version: u64,
}

impl Server {
    fn new(seed: u64) -> Self {
        let mut names = Names::default();
        let profile = Profile::standard(names.intern("default-scheduler"));
        let config = Config {
            profiles: vec![profile],
            queue: QueueConfig::default(),
            seed,
        };
        let mut server = Self {
            random: fastrand::Rng::with_seed(seed),
            scheduler: Scheduler::new(config, names),
            now: Time::from_secs(1_000_000),
            pods: BTreeMap::new(),
            open: Vec::new(),
            next: 0,
            version: 0,
        };
        for index in 0..4 {
            let json = format!(
                r#"{{"metadata":{{"name":"n{index}"}},"status":{{"allocatable":{{"cpu":"4","memory":"4Gi","pods":"6"}}}}}}"#
            );
            let node = decode::node(json.as_bytes(), server.scheduler.names_mut()).unwrap();
            server
                .scheduler
                .observe(Observation::Node(Box::new(node)), server.now);
        }
        server
    }

    fn create(&mut self) {
        self.next += 1;
        let name = format!("p{}", self.next);
        let json = format!(
            r#"{{"metadata":{{"name":"{name}","uid":"{name}","namespace":"d"}},"spec":{{"priority":{},
                "containers":[{{"resources":{{"requests":{{"cpu":"{}m"}}}}}}]}}}}"#,
            self.random.u8(..4),
            self.random.u16(200..3000)
        );
        let pod = decode::pod(json.as_bytes(), self.scheduler.names_mut()).unwrap();
        self.put(pod);
    }

    /// Stores a pod and tells of it.
    fn put(&mut self, mut pod: Pod) {
        self.version += 1;
        pod.resource_version = self.version.to_string().into();
        self.pods.insert(pod.uid.to_string(), pod.clone());
        self.scheduler
            .observe(Observation::Pod(Box::new(pod)), self.now);
    }

    fn delete(&mut self, uid: &str) {
        if self.pods.remove(uid).is_some() {
            self.scheduler
                .observe(Observation::PodGone(uid.into()), self.now);
        }
    }

    /// Answers one of the open requests, in whatever order.
    fn answer(&mut self) -> Result<(), TestCaseError> {
        if self.open.is_empty() {
            return Ok(());
        }
        let action = self.open.swap_remove(self.random.usize(..self.open.len()));
        let fails = self.random.u8(..5) == 0;
        let result = match &action.kind {
            _ if fails => ActionResult::Failed("server is away".to_owned()),
            ActionKind::Bind { pod, node } => match self.pods.get(&*pod.uid).cloned() {
                None => ActionResult::Gone,
                Some(mut stored) => {
                    prop_assert!(stored.node.is_none(), "{} is bound twice", pod.name);
                    stored.node = Some(self.scheduler.names_mut().intern(node));
                    self.put(stored);
                    // Sometimes it is done, but the answer is lost.
                    match self.random.u8(..8) {
                        0 => ActionResult::Failed("connection lost".to_owned()),
                        _ => ActionResult::Done,
                    }
                }
            },
            ActionKind::PatchStatus { pod, nominated, .. } => {
                if let Some(mut stored) = self.pods.get(&*pod.uid).cloned() {
                    match nominated {
                        NominatedNode::Keep => {}
                        NominatedNode::Clear => stored.nominated = None,
                        NominatedNode::Set(node) => {
                            stored.nominated = Some(self.scheduler.names_mut().intern(node))
                        }
                    }
                    self.put(stored);
                }
                ActionResult::Done
            }
            ActionKind::Evict { victim, .. } => {
                let uid = victim.uid.to_string();
                self.delete(&uid);
                ActionResult::Done
            }
            _ => ActionResult::Done,
        };
        let more = self.scheduler.finished(action.id, result, self.now);
        self.open.extend(more);
        Ok(())
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let cluster = self.scheduler.cluster();
        for (id, node) in cluster.nodes.iter() {
            let asked: i64 = cluster
                .nodes
                .pods(id)
                .iter()
                .filter_map(|pod| cluster.pods.get(*pod))
                .map(|record| record.pod.charge().requests.get(ResourceId::CPU))
                .sum();
            prop_assert_eq!(asked, cluster.nodes.requested(ResourceId::CPU, id));
            prop_assert!(
                asked <= node.allocatable.get(ResourceId::CPU),
                "too much on a node"
            );
            prop_assert!(
                cluster.nodes.pods(id).len() as i64 <= node.pods,
                "too many on a node"
            );
        }
        let mut known = BTreeSet::new();
        for (id, record) in cluster.pods.iter() {
            known.insert(record.pod.uid.to_string());
            let entry = self.scheduler.queue().get(id);
            match (record.place, record.assumed) {
                (None, _) => {
                    let room = entry.map(|entry| entry.room);
                    prop_assert!(
                        matches!(
                            room,
                            Some(
                                Room::Active
                                    | Room::Backoff
                                    | Room::ErrorBackoff
                                    | Room::Unschedulable
                            )
                        ),
                        "{} is lost: {:?}",
                        record.pod.name,
                        room
                    );
                }
                (Some(_), true) => {
                    prop_assert!(entry.is_some(), "{} could not come back", record.pod.name)
                }
                (Some(_), false) => {
                    prop_assert!(entry.is_none(), "{} is placed and queued", record.pod.name)
                }
            }
        }
        let stored: BTreeSet<_> = self.pods.keys().cloned().collect();
        prop_assert_eq!(known, stored);
        Ok(())
    }

    fn step(&mut self) {
        if let Some(cycle) = self.scheduler.step(self.now) {
            self.open.extend(cycle.actions);
        }
        let more = self.scheduler.take_actions();
        self.open.extend(more);
    }
}

fn live(seed: u64) -> Result<(), TestCaseError> {
    let mut server = Server::new(seed);
    for _ in 0..300 {
        match server.random.u8(..10) {
            0 | 1 => server.create(),
            2 => {
                let uids: Vec<_> = server.pods.keys().cloned().collect();
                if let Some(uid) = uids.get(server.random.usize(..uids.len().max(1))) {
                    server.delete(uid);
                }
            }
            3 => {
                server.now = server
                    .now
                    .after(Duration::from_millis(server.random.u64(..3000)))
            }
            4..=6 => server.answer()?,
            _ => server.step(),
        }
        server.check()?;
    }
    // Left alone, and with a server that answers, it comes to rest with whoever fits on a node.
    for _ in 0..2000 {
        server.step();
        while !server.open.is_empty() {
            server.answer()?;
        }
        if let Some(later) = server.scheduler.next_wakeup() {
            server.now = server.now.max(later);
        }
        server.check()?;
        if server.scheduler.queue().is_idle() && server.open.is_empty() {
            break;
        }
    }
    prop_assert_eq!(server.scheduler.under_way(), 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn nobody_is_lost_or_bound_twice(seed: u64) {
        live(seed)?;
    }
}
