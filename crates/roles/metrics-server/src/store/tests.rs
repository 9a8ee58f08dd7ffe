//! What is shown after which scrapes.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use plimsoll_apimachinery::selector::{Selector, parse_labels};

use super::*;
use crate::decode::ContainerPoint;
use crate::points::Point;
use crate::view::{Found, View};

const RESOLUTION: Duration = Duration::from_secs(60);
const SECOND: i64 = 1_000_000_000;

struct World {
    store: Store,
    view: View,
    began: Instant,
}

/// `node` and pods as `namespace/pod/container start time cpu`, all in seconds.
fn page(node: Option<(i64, u64)>, containers: &[(&'static str, i64, i64, u64)]) -> Page<'static> {
    let point = |start: i64, at: i64, cpu: u64| Point {
        start: start * SECOND,
        at: at * SECOND,
        cpu: cpu * SECOND as u64,
        memory: 1024,
    };
    let mut containers: Vec<_> = containers
        .iter()
        .map(|(path, start, at, cpu)| {
            let parts: Vec<_> = path.split('/').collect();
            ContainerPoint {
                namespace: parts[0],
                pod: parts[1],
                container: parts[2],
                point: point(*start, *at, *cpu),
                swap: None,
            }
        })
        .collect();
    containers.sort_by(|a, b| {
        (&a.namespace, &a.pod, &a.container).cmp(&(&b.namespace, &b.pod, &b.container))
    });
    Page {
        node: node.map(|(at, cpu)| point(0, at, cpu)),
        containers,
        ..Page::default()
    }
}

fn labels(text: &str) -> Labels {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.collect()
}

impl World {
    fn new(change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::new(RESOLUTION);
        change(&mut settings);
        let store = Store::new(settings);
        for node in ["a", "b"] {
            store.put_node(node, labels(&format!("name={node}")));
        }
        for (pod, app) in [("n/p", "x"), ("n/q", "y"), ("m/p", "x"), ("n-1/p", "x")] {
            let (namespace, name) = pod.split_once('/').unwrap();
            store.put_pod(namespace, name, labels(&format!("app={app}")));
        }
        Self {
            view: View::new(store.clone()),
            store,
            began: Instant::now(),
        }
    }

    fn at(&self, seconds: u64) -> Instant {
        self.began + Duration::from_secs(seconds)
    }

    fn scrape(
        &self,
        node: &str,
        seconds: u64,
        (at, cpu): (i64, u64),
        containers: &[(&'static str, i64, i64, u64)],
    ) {
        let page = page(Some((at, cpu)), containers);
        self.store.publish(node, &page, self.at(seconds));
    }

    fn shown(&self, selector: &str) -> String {
        let selector = Selector {
            labels: parse_labels(selector).unwrap(),
            ..Selector::default()
        };
        let mut text = String::new();
        self.view.visit_nodes(&selector, &mut |row| {
            let usage = row.usage;
            let (window, millis) = (usage.window / SECOND, usage.nanocores / 1_000_000);
            writeln!(text, "{} {}s {}m", row.name, window, millis).unwrap();
        });
        let mut after = None;
        loop {
            // Pieces as small as can be: the whole must be the same.
            after = self
                .view
                .visit_pods(None, &selector, after.as_ref(), None, 1, &mut |row| {
                    write!(text, "{}/{}", row.namespace, row.name).unwrap();
                    for (name, usage) in row.containers {
                        let (window, millis) = (usage.window / SECOND, usage.nanocores / 1_000_000);
                        write!(text, " {name} {window}s {millis}m").unwrap();
                    }
                    text.push('\n');
                });
            if after.is_none() {
                break;
            }
        }
        let points = self.view.points();
        writeln!(text, "points {} {}", points.node, points.container).unwrap();
        text
    }

    #[track_caller]
    fn check(&self, expected: &Expect) {
        expected.assert_eq(&self.shown(""));
    }
}

fn world() -> World {
    World::new(|_| {})
}

#[tokio::test(start_paused = true)]
async fn figures_are_shown_after_two_scrapes_in_order() {
    let world = world();
    let both = |world: &World, at: i64, cpu| {
        world.scrape(
            "a",
            at as u64,
            (1000 + at, cpu),
            &[
                ("n/p/c", 1, 1000 + at, cpu),
                ("n-1/p/c", 1, 1000 + at, cpu),
                ("m/p/z", 1, 1000 + at, cpu),
                ("m/p/b", 1, 1000 + at, cpu),
                ("unknown/p/b", 1, 1000 + at, cpu),
            ],
        );
    };
    both(&world, 0, 10);
    world.check(&expect![[r#"
        points 0 0
    "#]]);
    assert_eq!(world.view.node("a", |_| ()), Found::NoMetrics);
    assert_eq!(world.view.node("x", |_| ()), Found::Unknown);
    both(&world, 60, 40);
    world.check(&expect![[r#"
        a 60s 500m
        m/p b 60s 500m z 60s 500m
        n/p c 60s 500m
        n-1/p c 60s 500m
        points 1 5
    "#]]);
    expect![[r#"
        points 1 5
    "#]]
    .assert_eq(&world.shown("app=y"));
    expect![[r#"
        a 60s 500m
        points 1 5
    "#]]
    .assert_eq(&world.shown("name in (a,b)"));
    assert_eq!(
        world.view.pod("m", "p", |row| row.containers.len()),
        Found::Found(2)
    );
    assert_eq!(world.view.pod("n", "q", |_| ()), Found::NoMetrics);
    assert_eq!(world.view.pod("unknown", "p", |_| ()), Found::Unknown);
}

#[tokio::test(start_paused = true)]
async fn namespaces_are_told_apart_though_they_begin_alike() {
    let world = world();
    for at in [0, 60] {
        let all = [
            ("n/p/c", 1, 1000 + at, 5),
            ("n/q/c", 1, 1000 + at, 5),
            ("n-1/p/c", 1, 1000 + at, 5),
        ];
        world.scrape("a", at as u64, (1000 + at, 5), &all);
    }
    let mut seen = Vec::new();
    let end = world.view.visit_pods(
        Some("n"),
        &Selector::default(),
        None,
        None,
        10,
        &mut |row| {
            seen.push(row.name.to_owned());
        },
    );
    assert_eq!((seen, end), (vec!["p".to_owned(), "q".to_owned()], None));
}

#[tokio::test(start_paused = true)]
async fn a_container_without_a_rate_withholds_its_pod_or_itself() {
    for (lenient, expected) in [
        (
            false,
            expect![[r#"
                a 60s 100m
                points 1 1
            "#]],
        ),
        (
            true,
            expect![[r#"
                a 60s 100m
                n/p c 60s 100m
                points 1 1
            "#]],
        ),
    ] {
        let world = World::new(|settings| settings.lenient_pods = lenient);
        world.scrape("a", 0, (1000, 1), &[("n/p/c", 1, 1000, 1)]);
        let more = [("n/p/c", 1, 1060, 7), ("n/p/new", 1055, 1060, 7)];
        world.scrape("a", 60, (1060, 7), &more);
        world.check(&expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_counter_that_fell_leaves_out_its_container_only() {
    let world = world();
    let page = |at, one, other| [("n/p/b", 1, at, one), ("n/p/c", 1, at, other)];
    world.scrape("a", 0, (1000, 60), &page(1000, 60, 60));
    world.scrape("a", 60, (1060, 1), &page(1060, 1, 120));
    world.check(&expect![[r#"
        n/p c 60s 1000m
        points 1 2
    "#]]);
    world.scrape("a", 120, (1120, 61), &page(1120, 61, 120));
    world.check(&expect![[r#"
        a 60s 1000m
        n/p b 60s 1000m c 60s 0m
        points 1 2
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_scrape_keeps_figures_for_a_time() {
    for (keep, shown) in [(0, false), (120, true), (59, false)] {
        let world = World::new(|settings| settings.keep = Duration::from_secs(keep));
        world.scrape("a", 0, (1000, 10), &[("n/p/c", 1, 1000, 10)]);
        world.scrape("a", 60, (1060, 40), &[("n/p/c", 1, 1060, 40)]);
        world.store.failed("a", world.at(119));
        assert_eq!(world.shown("").contains("n/p"), shown, "{keep}");
        assert_eq!(world.view.ready().nodes, shown);
        world.store.sweep(world.at(60 + 119));
        assert_eq!(world.shown("").contains("n/p"), shown, "{keep}");
        world.store.sweep(world.at(60 + 120));
        assert_eq!(world.shown(""), "points 0 0\n", "{keep}");
        // Two more scrapes are needed, as for any new node.
        world.scrape("a", 300, (1300, 50), &[("n/p/c", 1, 1300, 50)]);
        assert_eq!(world.shown(""), "points 0 0\n", "{keep}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_page_lacks_is_gone() {
    let world = world();
    for at in [0, 60] {
        let all = [("n/p/c", 1, 1000 + at, 5), ("n/q/c", 1, 1000 + at, 5)];
        world.scrape("a", at as u64, (1000 + at, 5), &all);
    }
    let fewer = page(None, &[("n/q/c", 1, 1120, 65)]);
    world.store.publish("a", &fewer, world.at(120));
    world.check(&expect![[r#"
        n/q c 60s 1000m
        points 0 1
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_moves_is_the_new_nodes() {
    let world = world();
    let old = |at, cpu| [("n/p/c", 1, at, cpu)];
    let new = |at, cpu| [("n/p/c", 1065, at, cpu)];
    world.scrape("a", 0, (1000, 1), &old(1000, 1));
    world.scrape("a", 60, (1060, 2), &old(1060, 7));
    world.scrape("b", 60, (1070, 1), &new(1070, 1));
    // What is left on the old node changes nothing.
    world.scrape("a", 120, (1120, 3), &old(1120, 8));
    world.check(&expect![[r#"
        a 60s 16m
        points 1 0
    "#]]);
    assert_eq!(world.view.rivals(), 1);
    world.scrape("b", 120, (1130, 1), &new(1130, 31));
    world.scrape("a", 180, (1180, 3), &[]);
    world.check(&expect![[r#"
        a 60s 0m
        b 60s 0m
        n/p c 60s 500m
        points 2 1
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn the_same_page_under_two_names_is_shown_once() {
    let world = world();
    for at in [0, 60, 120] {
        for node in ["a", "b"] {
            let pods = [("n/p/c", 1, 1000 + at, at as u64 / 2)];
            world.scrape(node, at as u64, (1000 + at, at as u64), &pods);
        }
    }
    world.check(&expect![[r#"
        a 60s 1000m
        b 60s 1000m
        n/p c 60s 500m
        points 2 1
    "#]]);
    // The other one takes over when the first has nothing to tell.
    world.store.remove_node("a");
    for at in [180, 240] {
        world.scrape(
            "b",
            at,
            (1180 + at as i64, 0),
            &[("n/p/c", 1, 1000 + at as i64, at)],
        );
    }
    assert!(world.shown("").contains("n/p c 60s 1000m"));
}

#[tokio::test(start_paused = true)]
async fn nodes_and_pods_that_go() {
    let world = world();
    for at in [0, 60] {
        let all = [("n/p/c", 1, 1000 + at, 5), ("n/q/c", 1, 1000 + at, 5)];
        world.scrape("a", at as u64, (1000 + at, 5), &all);
    }
    world.store.remove_pod("n", "p");
    assert_eq!(world.view.pod("n", "p", |_| ()), Found::Unknown);
    world.check(&expect![[r#"
        a 60s 0m
        n/q c 60s 0m
        points 1 2
    "#]]);
    world.store.begin_pods();
    world.store.put_pod("n", "p", Labels::default());
    world.store.end_pods();
    world.check(&expect![[r#"
        a 60s 0m
        n/p c 60s 0m
        points 1 2
    "#]]);
    world.store.remove_node("a");
    world.check(&expect![[r#"
        points 0 0
    "#]]);
    // A scrape that was on its way when the node went is of no interest.
    world.scrape("a", 120, (1120, 5), &[("n/p/c", 1, 1120, 5)]);
    world.check(&expect![[r#"
        points 0 0
    "#]]);
    assert_eq!(world.store.read().order.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn unselected_nodes_are_neither_scraped_nor_listed() {
    let world = World::new(|settings| settings.node_selector = parse_labels("name=b").unwrap());
    for at in [0, 60] {
        world.scrape("a", at as u64, (1000 + at, 5), &[]);
        world.scrape("b", at as u64, (1000 + at, 5), &[]);
    }
    world.check(&expect![[r#"
        b 60s 0m
        points 1 0
    "#]]);
    assert_eq!(world.view.node("a", |_| ()), Found::NoMetrics);
}

#[tokio::test(start_paused = true)]
async fn new_samples_go_to_the_books_of_their_workload() {
    let history = History::new(crate::history::Config::new(Duration::from_secs(3600)));
    let world = World::new(|settings| settings.history = Some(history.clone()));
    let workload = Workload {
        namespace: "n".into(),
        kind: "Deployment".into(),
        name: "w".into(),
    };
    for name in ["p", "q"] {
        world
            .store
            .put_owned_pod(name, Labels::default(), workload.clone());
    }
    // The second page says what the first said, the pod of another namespace is nobody's.
    for at in [1000, 1000, 1060] {
        let cpu = at as u64;
        let all = [
            ("n/p/c", 1, at, cpu),
            ("n/q/c", 1, at, cpu),
            ("m/p/c", 1, at, cpu),
        ];
        world.scrape("a", at as u64, (at, cpu), &all);
    }
    let mut seen = Vec::new();
    history.visit(None, &|_| true, &mut |row| {
        let samples = row.buckets.iter().map(|one| one.samples).sum::<u32>();
        seen.push((
            row.workload.name.to_string(),
            row.container.to_owned(),
            samples,
        ));
    });
    assert_eq!(seen, [("w".to_owned(), "c".to_owned(), 2)]);
}
