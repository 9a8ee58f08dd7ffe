//! Turns, in time that is told.

use std::collections::BTreeMap;

use super::*;

const RESOLUTION: Duration = Duration::from_secs(15);

fn target(host: &str) -> Result<Target, NoAddress> {
    Ok(Target {
        host: host.to_owned(),
        port: 1,
        path: "/".to_owned(),
        plain: true,
    })
}

struct World {
    fleet: Fleet,
    began: Instant,
}

impl World {
    fn new(nodes: &[&str]) -> Self {
        let began = Instant::now();
        let mut fleet = Fleet::new(RESOLUTION, began);
        for name in nodes {
            fleet.put((*name).into(), target("a"), true, began);
        }
        Self { fleet, began }
    }

    fn at(&self, seconds: f64) -> Instant {
        self.began + Duration::from_secs_f64(seconds)
    }

    /// Runs until then; each scrape takes as long as `serve` says and has its outcome. Gives when each node's began.
    fn run(
        &mut self,
        until: f64,
        serve: impl Fn(&str, f64) -> (f64, Outcome),
    ) -> BTreeMap<String, Vec<f64>> {
        let mut began = BTreeMap::<String, Vec<f64>>::new();
        let mut running: Vec<(Instant, Ticket, Outcome)> = Vec::new();
        loop {
            let due = self.fleet.next_due();
            running.sort_by_key(|(end, ..)| Reverse(*end));
            let end = running.last().map(|(end, ..)| *end);
            let Some(now) = due.into_iter().chain(end).min() else {
                return began;
            };
            if now > self.at(until) {
                for (end, ticket, outcome) in running {
                    self.fleet.ended(ticket, outcome, None, end);
                }
                return began;
            }
            while let Some((_, ticket, outcome)) = running.pop_if(|(end, ..)| *end <= now) {
                self.fleet.ended(ticket, outcome, None, now);
            }
            while let Some(job) = self.fleet.take_due(now) {
                let seconds = (now - self.began).as_secs_f64();
                let (took, outcome) = serve(&job.name, seconds);
                began.entry(job.name.to_string()).or_default().push(seconds);
                running.push((now + Duration::from_secs_f64(took), job.ticket(), outcome));
            }
        }
    }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|index| format!("node-{index}")).collect()
}

#[tokio::test(start_paused = true)]
async fn a_rate_soon_and_then_every_interval() {
    let names = names(200);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut world = World::new(&names);
    let turns = world.run(120.0, |_, at| {
        let outcome = if at < 5.0 {
            Outcome::NoRate
        } else {
            Outcome::Rate
        };
        (0.1, outcome)
    });
    assert_eq!(turns.len(), 200);
    let mut thirds = Vec::new();
    for (name, turns) in &turns {
        assert_eq!(turns[0], 0.0);
        assert!((turns[1] - 10.1).abs() < 0.01, "{name} {turns:?}");
        let third = turns[2] - turns[1];
        assert!((7.4..22.6).contains(&third), "{name} {turns:?}");
        for pair in turns[2..].windows(2) {
            assert!((pair[1] - pair[0] - 15.0).abs() < 1e-6, "{name} {turns:?}");
        }
        thirds.push(turns[3] % 15.0);
    }
    // Spread over the interval: every twentieth of it has some.
    for part in 0..20 {
        let (from, to) = (f64::from(part) * 0.75, f64::from(part + 1) * 0.75);
        assert!(thirds.iter().any(|at| (from..to).contains(at)), "{part}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_with_nothing_new_is_not_pestered() {
    let mut world = World::new(&["a"]);
    let turns = world.run(60.0, |_, _| (0.0, Outcome::NoRate));
    let turns = &turns["a"];
    assert_eq!(turns[..4], [0.0, 10.0, 15.0, 20.0]);
    assert!(turns.len() <= 8, "{turns:?}");
}

#[tokio::test(start_paused = true)]
async fn who_fails_is_asked_less_often_and_others_are_not() {
    let mut world = World::new(&["good", "hung"]);
    let turns = world.run(600.0, |name, _| match name {
        "good" => (0.01, Outcome::Rate),
        _ => (10.0, Outcome::Failed),
    });
    let (good, hung) = (&turns["good"], &turns["hung"]);
    assert!(good.len() >= 40, "{good:?}");
    assert!((9..=14).contains(&hung.len()), "{hung:?}");
    let last = hung[hung.len() - 1] - hung[hung.len() - 2];
    assert!((59.0..=61.0).contains(&last), "{hung:?}");
    // Back again: a rate is wanted soon.
    let turns = world.run(800.0, |_, _| (0.01, Outcome::NoRate));
    let hung = &turns["hung"];
    assert!((hung[1] - hung[0] - 10.0).abs() < 0.1, "{hung:?}");
}

#[tokio::test(start_paused = true)]
async fn news_of_a_node_that_failed_is_a_reason_to_try_again() {
    let mut world = World::new(&["a"]);
    world.run(200.0, |_, _| (1.0, Outcome::Failed));
    let now = world.at(200.5);
    assert!(world.fleet.next_due().unwrap() > now);
    // The same again is no news.
    world.fleet.put("a".into(), target("a"), true, now);
    assert!(world.fleet.next_due().unwrap() > now);
    world.fleet.put("a".into(), target("b"), true, now);
    assert_eq!(world.fleet.next_due(), Some(now));
    world.run(300.0, |_, _| (1.0, Outcome::Failed));
    let now = world.at(300.5);
    world.fleet.put("a".into(), target("b"), false, now);
    assert!(world.fleet.next_due().unwrap() > now);
    world.fleet.put("a".into(), target("b"), true, now);
    assert_eq!(world.fleet.next_due(), Some(now));
}

#[tokio::test(start_paused = true)]
async fn nodes_that_go_while_they_are_scraped() {
    let mut world = World::new(&["a"]);
    let now = world.began;
    let job = world.fleet.take_due(now).unwrap();
    assert!(world.fleet.take_due(now).is_none(), "one at a time");
    assert_eq!(world.fleet.behind_since(world.at(3.0)), Some(now));
    world.fleet.remove("a");
    assert!(!world.fleet.ended(job.ticket(), Outcome::Rate, None, now));
    assert_eq!((world.fleet.len(), world.fleet.next_due()), (0, None));
    // One of the same name is another one.
    world.fleet.put("a".into(), target("a"), true, now);
    let second = world.fleet.take_due(now).unwrap();
    assert!(!world.fleet.ended(job.ticket(), Outcome::Rate, None, now));
    assert!(world.fleet.ended(second.ticket(), Outcome::Rate, None, now));
    assert_eq!(world.fleet.behind_since(world.at(3.0)), None);
}
