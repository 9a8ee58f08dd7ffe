use super::*;

const SECOND: i64 = 1_000_000_000;

fn config(series: usize) -> Config {
    Config {
        span: Duration::from_secs(600),
        step: Duration::from_secs(60),
        series,
    }
}

fn sample(name: &str, container: &str, at: i64, nanocores: u64) -> Sample {
    Sample {
        workload: Arc::new(Workload {
            namespace: "n".into(),
            kind: "Deployment".into(),
            name: name.into(),
        }),
        container: container.into(),
        usage: Usage {
            at: at * SECOND,
            window: 15 * SECOND,
            nanocores,
            memory: 10 * nanocores,
            swap: None,
        },
    }
}

/// Begin, samples, least, mean and most of each bucket.
type Shown = (i64, u32, f64, f64, f64);

fn shown(history: &History) -> Vec<(String, Vec<Shown>)> {
    let mut rows = Vec::new();
    history.visit(None, &|_| true, &mut |row| {
        let buckets = row.buckets.iter();
        let buckets = buckets.map(|one| {
            assert_eq!(one.memory.max, 10.0 * one.cpu.max);
            (
                one.begins,
                one.samples,
                one.cpu.min,
                one.cpu.mean,
                one.cpu.max,
            )
        });
        rows.push((
            format!("{}/{}", row.workload.name, row.container),
            buckets.collect(),
        ));
    });
    rows
}

#[test]
fn steps_are_summed_up_and_forgotten_in_time() {
    let history = History::new(config(10));
    for at in [600, 615, 630, 660, 900] {
        history.record(&[
            sample("a", "c", at, at as u64),
            sample("a", "c", at, 2 * at as u64),
        ]);
    }
    assert_eq!(
        shown(&history),
        [(
            "a/c".to_owned(),
            vec![
                (600, 6, 600.0, 922.5, 1260.0),
                (660, 2, 660.0, 990.0, 1320.0),
                (900, 2, 900.0, 1350.0, 1800.0),
            ]
        )]
    );
    // A sample that comes late is not lost, and does not begin an old step again.
    history.record(&[sample("a", "c", 890, 30)]);
    assert_eq!(shown(&history)[0].1[2], (900, 3, 30.0, 910.0, 1800.0));
    history.record(&[sample("a", "c", 1260, 1)]);
    let begins: Vec<i64> = shown(&history)[0].1.iter().map(|one| one.0).collect();
    assert_eq!(begins, [900, 1260]);
}

#[test]
fn rows_are_in_order_and_selected() {
    let history = History::new(config(10));
    for (name, container) in [("b", "z"), ("a", "y"), ("b", "x")] {
        history.record(&[sample(name, container, 600, 1)]);
    }
    let names: Vec<String> = shown(&history).into_iter().map(|row| row.0).collect();
    assert_eq!(names, ["a/y", "b/x", "b/z"]);
    let mut seen = 0;
    history.visit(Some("n"), &|workload| &*workload.name == "b", &mut |_| {
        seen += 1
    });
    assert_eq!(seen, 2);
    history.visit(Some("m"), &|_| true, &mut |_| seen += 1);
    assert_eq!(seen, 2);
}

#[test]
fn room_is_bounded_and_goes_to_those_at_work() {
    let history = History::new(config(3));
    for name in ["a", "b", "c", "d"] {
        history.record(&[sample(name, "c", 600, 1)]);
    }
    assert_eq!((shown(&history).len(), history.refused()), (3, 1));
    // Three steps later only two are heard of: there is room for another one.
    for at in [660, 720, 780] {
        history.record(&[sample("a", "c", at, 1), sample("c", "c", at, 1)]);
    }
    history.record(&[sample("d", "c", 780, 1)]);
    let names: Vec<String> = shown(&history).into_iter().map(|row| row.0).collect();
    assert_eq!(names, ["a/c", "c/c", "d/c"]);
    assert_eq!(history.refused(), 1);
}

#[test]
fn a_day_is_kept_in_steps_of_five_minutes() {
    let config = Config::new(Duration::from_secs(24 * 3600));
    assert_eq!(config.step, Duration::from_secs(300));
    let history = History::new(config);
    for at in (0..100_000).step_by(60) {
        history.record(&[sample("a", "c", at, 1)]);
    }
    // The ring and the step that is not over.
    assert_eq!(shown(&history)[0].1.len(), 288);
}
