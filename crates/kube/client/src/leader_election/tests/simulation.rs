//! Several candidates with clocks of their own, in a world where requests take time and get lost.

use super::*;
use jiff::{SignedDuration, Timestamp};

const TICK: Duration = Duration::from_millis(20);

struct Node {
    elector: Elector,
    /// How fast its clock runs, and what its calendar is off by.
    rate: f64,
    skew: SignedDuration,
    cut_off: bool,
    dead: bool,
    pending: Option<Pending>,
    timeout: Duration,
}

struct Pending {
    asked_at: Duration,
    request: Action,
    arrives: Duration,
    answer: Option<Answer>,
    returns: Duration,
}

impl Node {
    fn clock(&self, time: Duration) -> Now {
        Now {
            monotonic: time.mul_f64(self.rate),
            wall: Timestamp::from_second(1_800_000_000).unwrap() + time + self.skew,
        }
    }
}

struct World {
    time: Duration,
    server: Server,
    nodes: Vec<Node>,
    random: fastrand::Rng,
    /// The longest that two led at once.
    overlap: Duration,
}

impl World {
    fn new(rates: &[f64], seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let nodes = rates.iter().enumerate().map(|(index, &rate)| {
            let config = config(&format!("node-{index}"));
            Node {
                timeout: config.request_timeout(),
                elector: Elector::new(config, random.u64(..)).unwrap(),
                rate,
                skew: SignedDuration::from_secs(random.i64(-1_000_000_000..1_000_000_000)),
                cut_off: false,
                dead: false,
                pending: None,
            }
        });
        let nodes = nodes.collect();
        Self {
            time: Duration::ZERO,
            server: Server::default(),
            nodes,
            random,
            overlap: Duration::ZERO,
        }
    }

    fn leaders(&self) -> Vec<usize> {
        let alive = self.nodes.iter().enumerate().filter(|(_, n)| !n.dead);
        alive
            .filter(|(_, n)| n.elector.leads())
            .map(|(i, _)| i)
            .collect()
    }

    fn tick(&mut self) {
        self.time += TICK;
        for node in self.nodes.iter_mut().filter(|node| !node.dead) {
            let now = node.clock(self.time);
            if let Some(pending) = &mut node.pending {
                if pending.answer.is_none() && self.time >= pending.arrives && !node.cut_off {
                    pending.answer = Some(self.server.answer(&pending.request));
                }
                let waited = now.monotonic - pending.asked_at;
                let deadline = node.elector.deadline();
                let too_late = waited >= node.timeout
                    || deadline.is_some_and(|deadline| now.monotonic >= deadline);
                let answer = match pending.answer.take() {
                    Some(answer) if self.time >= pending.returns && !node.cut_off => answer,
                    _ if too_late => Answer::Failed,
                    waiting => {
                        pending.answer = waiting;
                        continue;
                    }
                };
                node.pending = None;
                node.elector.answer(now, answer);
            }
            match node.elector.next(now) {
                Action::Sleep(_) | Action::End => {}
                request => {
                    let there = Duration::from_millis(self.random.u64(1..60));
                    let back = Duration::from_millis(self.random.u64(1..60));
                    node.pending = Some(Pending {
                        asked_at: now.monotonic,
                        request,
                        arrives: self.time + there,
                        answer: None,
                        returns: self.time + there + back,
                    });
                }
            }
        }
        if self.leaders().len() > 1 {
            self.overlap += TICK;
        }
    }

    fn run(&mut self, long: Duration) {
        let until = self.time + long;
        while self.time < until {
            self.tick();
        }
    }

    /// How long until somebody leads.
    fn until_led(&mut self) -> Duration {
        let began = self.time;
        while self.leaders().is_empty() {
            self.tick();
            assert!(self.time - began < Duration::from_secs(60), "nobody leads");
        }
        self.time - began
    }
}

fn secs(s: f64) -> Duration {
    Duration::from_secs_f64(s)
}

#[test]
fn one_of_three_leads_and_goes_on_leading() {
    for seed in 0..20 {
        let mut world = World::new(&[1.0, 1.0, 1.0], seed);
        world.until_led();
        let leader = world.leaders();
        world.run(secs(600.0));
        assert_eq!(world.leaders(), leader);
        assert_eq!(world.overlap, Duration::ZERO);
        let lease = world.server.lease.as_ref().unwrap();
        assert_eq!(spec(lease).lease_transitions, Some(0));
    }
}

#[test]
fn a_dead_leader_is_replaced_in_time() {
    for seed in 0..20 {
        let mut world = World::new(&[1.0, 1.0, 1.0], seed);
        world.until_led();
        world.run(secs(30.0) + Duration::from_millis(seed * 137));
        let dead = world.leaders()[0];
        world.nodes[dead].dead = true;
        let took = world.until_led();
        // The lease, after the last renewal was seen, and one try more; requests take a while as well.
        assert!(
            took >= secs(12.5) && took <= secs(15.0 + 8.8 + 0.5),
            "{took:?}"
        );
        assert_eq!(world.overlap, Duration::ZERO);
    }
}

#[test]
fn a_leader_that_steps_down_is_replaced_sooner() {
    for seed in 0..20 {
        let mut world = World::new(&[1.0, 1.0, 1.0], seed);
        world.until_led();
        world.run(secs(20.0));
        let leaving = world.leaders()[0];
        world.nodes[leaving].elector.stop();
        while world.leaders() == [leaving] {
            world.tick();
        }
        let took = world.until_led();
        assert!(took <= secs(4.4 + 0.5), "{took:?}");
        assert_eq!(world.overlap, Duration::ZERO);
        assert_ne!(world.leaders(), [leaving]);
    }
}

/// A leader that is cut off stops before anybody may take over, as long as no clock runs much faster than another.
fn partitions(rates: &[f64], seed: u64) -> Duration {
    let mut world = World::new(rates, seed);
    world.until_led();
    for round in 0..6 {
        let a_while = Duration::from_millis(world.random.u64(0..4000));
        world.run(secs(10.0) + a_while);
        let cut_off = world.leaders().first().copied();
        if let Some(leader) = cut_off {
            world.nodes[leader].cut_off = true;
        }
        world.run(secs(40.0));
        for (index, node) in world.nodes.iter_mut().enumerate() {
            node.cut_off = false;
            let ended = node.elector.next(node.clock(world.time)) == Action::End;
            if ended {
                // A process that lost is started again.
                let config = config(&format!("node-{index}-{round}"));
                node.elector = Elector::new(config, world.random.u64(..)).unwrap();
                node.pending = None;
            }
        }
    }
    world.overlap
}

#[test]
fn no_two_lead_while_clocks_run_alike_enough() {
    for seed in 0..10 {
        for rates in [
            [1.0, 1.0, 1.0],
            [1.0, 1.1, 0.9],
            [0.85, 1.0, 0.95],
            [1.0, 1.2, 1.1],
        ] {
            let overlap = partitions(&rates, seed);
            assert_eq!(overlap, Duration::ZERO, "{rates:?}, seed {seed}");
        }
    }
}

#[test]
fn the_limit_is_where_it_is_said_to_be() {
    // The slow one cannot know that its ten seconds are twenty of the others'.
    let overlaps = (0..20).filter(|&seed| !partitions(&[0.5, 1.0, 1.0], seed).is_zero());
    assert!(overlaps.count() > 0);
}

#[test]
fn short_outages_cost_nothing() {
    let mut world = World::new(&[1.0, 1.0, 1.0], 3);
    world.until_led();
    let leader = world.leaders();
    for _ in 0..10 {
        world.run(secs(20.0));
        world.nodes.iter_mut().for_each(|node| node.cut_off = true);
        world.run(secs(7.0));
        world.nodes.iter_mut().for_each(|node| node.cut_off = false);
    }
    world.run(secs(20.0));
    assert_eq!(world.leaders(), leader);
    let lease = world.server.lease.as_ref().unwrap();
    assert_eq!(spec(lease).lease_transitions, Some(0));
}

#[test]
fn a_paused_leader_knows_that_it_may_be_one_no_more() {
    let mut world = World::new(&[1.0, 1.0], 5);
    world.until_led();
    world.run(secs(10.0));
    let paused = world.leaders()[0];
    world.nodes[paused].dead = true;
    world.run(secs(40.0));
    assert_eq!(world.leaders(), [1 - paused]);
    let node = &world.nodes[paused];
    let safe_until = node.elector.safe_until().unwrap();
    assert!(safe_until < node.clock(world.time).monotonic);
    world.nodes[paused].dead = false;
    world.run(secs(0.5));
    assert_eq!(
        world.leaders(),
        [1 - paused],
        "it stops as soon as it looks"
    );
}
