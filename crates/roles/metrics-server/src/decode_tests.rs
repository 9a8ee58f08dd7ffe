//! What is read off pages, good and bad.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

const ASKED_AT: i64 = 5_000_000_000;

fn shown(page: &str, lenient: bool) -> String {
    let reading = Reading {
        lenient,
        ..Reading::default()
    };
    let page = match decode(page.as_bytes(), ASKED_AT, reading) {
        Ok(page) => page,
        Err(error) => return format!("{error}\n"),
    };
    let mut text = String::new();
    let mut show = |name: &str, point: &Point| {
        let Point {
            start,
            at,
            cpu,
            memory,
        } = point;
        writeln!(
            text,
            "{name} start={start} at={at} cpu={cpu} memory={memory}"
        )
        .unwrap();
    };
    if let Some(node) = &page.node {
        show("node", node);
    }
    for one in &page.containers {
        show(
            &format!("{}/{}/{}", one.namespace, one.pod, one.container),
            &one.point,
        );
    }
    if page.unlabelled + page.incomplete > 0 {
        let (unlabelled, incomplete) = (page.unlabelled, page.incomplete);
        writeln!(text, "unlabelled={unlabelled} incomplete={incomplete}").unwrap();
    }
    text
}

#[test]
fn swap_is_read_where_it_is_wanted() {
    let whole = |whose: &str| {
        container("cpu", whose, "1")
            + &container("memory", whose, "2")
            + &container("swap", whose, "4096")
    };
    let page = whole("n/p/a")
        + &container("cpu", "n/p/b", "1")
        + &container("memory", "n/p/b", "2")
        // A container of which nothing else is told does not hide its pod.
        + &container("swap", "n/p/gone", "7")
        + "node_cpu_usage_seconds_total 1\nnode_memory_working_set_bytes 2\nnode_swap_usage_bytes 0\n";
    for (swap, expected) in [
        (true, (Some(0), vec![Some(4096), None])),
        (false, (None, vec![None, None])),
    ] {
        let reading = Reading {
            swap,
            ..Reading::default()
        };
        let page = decode(page.as_bytes(), ASKED_AT, reading).unwrap();
        let each = page.containers.iter().map(|one| one.swap).collect();
        assert_eq!((page.node_swap, each), expected);
        assert_eq!(page.incomplete, 0);
    }
}

#[track_caller]
fn check(page: &str, expected: Expect) {
    expected.assert_eq(&shown(page, false));
}

fn container(family: &str, whose: &str, value: &str) -> String {
    let parts: Vec<_> = whose.split('/').collect();
    let name = match family {
        "cpu" => "container_cpu_usage_seconds_total",
        "memory" => "container_memory_working_set_bytes",
        "swap" => "container_swap_usage_bytes",
        _ => "container_start_time_seconds",
    };
    format!(
        "{name}{{container=\"{}\",namespace=\"{}\",pod=\"{}\"}} {value}\n",
        parts[2], parts[0], parts[1]
    )
}

/// Lines of `family whose value`.
fn written(lines: &str) -> String {
    let lines = lines.lines().map(|line| {
        let mut words = line.trim().splitn(3, ' ');
        let mut word = || words.next().unwrap();
        container(word(), word(), word())
    });
    lines.collect()
}

#[test]
fn a_whole_page() {
    let page = "# TYPE node_cpu_usage_seconds_total counter\nnode_cpu_usage_seconds_total 357.35491 1633253809720\n\
        # TYPE node_memory_working_set_bytes gauge\nnode_memory_working_set_bytes 1.616273408e+09 1633253809721\n\
        scrape_error 0\nnode_swap_usage_bytes 0 1\npod_cpu_usage_seconds_total{namespace=\"n\",pod=\"p\"} 1 2\n"
        .to_owned()
        + &written(
            "cpu n/p/c 4.70 1633253812125
             cpu n/o/c 0.000000001 7
             memory n/p/c 2.9e7 1633253812126
             memory n/o/c 1 8
             start n/p/c 1.63325380912345e9 99
             start n/o/c -5",
        );
    check(
        &page,
        expect![[r#"
            node start=0 at=1633253809721000000 cpu=357354910000 memory=1616273408
            n/o/c start=0 at=8000000 cpu=1 memory=1
            n/p/c start=1633253809123450112 at=1633253812126000000 cpu=4700000000 memory=29000000
        "#]],
    );
}

#[test]
fn times_that_are_missing_or_out_of_order() {
    // Memory's time comes last, whatever it is.
    check(
        "node_memory_working_set_bytes 5 9\nnode_cpu_usage_seconds_total 5 7\n",
        expect![[r#"
            node start=0 at=7000000 cpu=5000000000 memory=5
        "#]],
    );
    check(
        "node_cpu_usage_seconds_total 5 7\nnode_memory_working_set_bytes 5\n",
        expect![[r#"
            node start=0 at=5000000000 cpu=5000000000 memory=5
        "#]],
    );
    check(
        "node_cpu_usage_seconds_total 5 -7\n",
        expect![[r#"
            line 1: the timestamp is no number of milliseconds
        "#]],
    );
    check(
        "node_cpu_usage_seconds_total 5 9223372036854775807\nnode_memory_working_set_bytes 5 9223372036854775807",
        expect![[r#"
            node start=0 at=9223372036854775807 cpu=5000000000 memory=5
        "#]],
    );
}

#[test]
fn a_later_series_replaces_an_earlier_one_field_by_field() {
    check(
        &written(
            "cpu n/p/c 1 1
             cpu n/p/c 2 2
             memory n/p/c 3 3
             start n/p/c 4
             start n/p/c 5",
        ),
        expect![[r#"
            n/p/c start=5000000000 at=3000000 cpu=2000000000 memory=3
        "#]],
    );
    // Also where others come between them, and in other orders.
    check(
        &written(
            "memory n/p/c 3 3
             memory n/q/c 3 4
             cpu n/q/c 1 5
             cpu n/p/c 2 6
             memory n/p/c 9 7
             cpu n/q/c 8 2
             cpu n/p/c 7 1",
        ),
        expect![[r#"
            n/p/c start=0 at=1000000 cpu=7000000000 memory=9
            n/q/c start=0 at=2000000 cpu=8000000000 memory=3
        "#]],
    );
}

#[test]
fn what_is_not_whole_is_left_out() {
    for page in [
        "node_cpu_usage_seconds_total 1\n",
        "node_memory_working_set_bytes 1\n",
        "node_cpu_usage_seconds_total 0\nnode_memory_working_set_bytes 1\n",
        "node_cpu_usage_seconds_total 1\nnode_memory_working_set_bytes 0\n",
        "node_cpu_usage_seconds_total NaN\nnode_memory_working_set_bytes 1\n",
        "node_cpu_usage_seconds_total -1\nnode_memory_working_set_bytes 1\n",
        "node_cpu_usage_seconds_total_more 1\nnode_memory_working_set_bytes 1\n",
        "",
    ] {
        assert_eq!(shown(page, false), "", "{page:?}");
    }
    check(
        "node_cpu_usage_seconds_total +Inf\nnode_memory_working_set_bytes 1e30\n",
        expect![[r#"
            node start=0 at=5000000000 cpu=18446744073709551615 memory=18446744073709551615
        "#]],
    );
}

#[test]
fn one_container_withholds_its_pod_unless_lenient() {
    let pages = [
        "cpu n/p/c 1 1\nmemory n/p/c 1 1\ncpu n/p/init 0 1\nmemory n/p/init 1 1\ncpu n/q/c 1 1\nmemory n/q/c 1 1",
        "cpu n/p/c 1 1\nmemory n/p/c 1 1\nstart n/p/init 9\ncpu n/q/c 1 1\nmemory n/q/c 1 1",
        "cpu n/p/c 1 1\nmemory n/p/c 1 1\nmemory n/p/init 1 1\ncpu n/q/c 1 1\nmemory n/q/c 1 1",
    ];
    for page in pages.map(written) {
        expect![[r#"
            n/q/c start=0 at=1000000 cpu=1000000000 memory=1
            unlabelled=0 incomplete=1
        "#]]
        .assert_eq(&shown(&page, false));
        expect![[r#"
            n/p/c start=0 at=1000000 cpu=1000000000 memory=1
            n/q/c start=0 at=1000000 cpu=1000000000 memory=1
            unlabelled=0 incomplete=1
        "#]]
        .assert_eq(&shown(&page, true));
    }
}

#[test]
fn labels_in_any_order_with_others_or_not_at_all() {
    check(
        "container_cpu_usage_seconds_total 1 1\n\
         container_cpu_usage_seconds_total{} 1 1\n\
         container_cpu_usage_seconds_total{container=\"c\",pod=\"p\"} 1 1\n\
         container_cpu_usage_seconds_total{container=\"c\",namespace=\"\",pod=\"p\"} 1 1\n\
         container_cpu_usage_seconds_total{pod=\"p\",my_pod=\"x\",namespace=\"n\",container=\"c\"} 1 1\n\
         container_memory_working_set_bytes{pod=\"p\",namespace=\"n\",zone=\"z\",container=\"c\"} 1 1\n\
         container_cpu_usage_seconds_total{container=\"a\\\"\",namespace=\"n\",pod=\"p\"} 1 1\n\
         container_memory_working_set_bytes{container=\"a\\\"\",namespace=\"n\",pod=\"p\"} 1 1\n",
        expect![[r#"
            n/p/c start=0 at=1000000 cpu=1000000000 memory=1
            unlabelled=6 incomplete=0
        "#]],
    );
}

/// A family, one of a few containers, a value and a time.
type Series = (usize, usize, u8, u8);

/// The rules as they are said, on maps.
fn simple(series: &[Series]) -> Vec<(String, u64, u64, i64, i64)> {
    use std::collections::BTreeMap;
    let mut all: BTreeMap<usize, (u64, u64, i64, i64)> = BTreeMap::new();
    for (family, whose, value, at) in series {
        let one = all.entry(*whose).or_default();
        let (value, at) = (u64::from(*value), i64::from(*at) * 1_000_000);
        match family {
            0 => (one.0, one.2) = (value * 1_000_000_000, at),
            1 => (one.1, one.2) = (value, at),
            _ => one.3 = i64::from(value as u8) * 1_000_000_000,
        }
    }
    let whole = |pod: usize| {
        let mut containers = all.range(2 * pod..2 * pod + 2);
        containers.all(|(_, one)| one.0 > 0 && one.1 > 0)
    };
    let shown = all.iter().filter(|(whose, _)| whole(**whose / 2));
    shown
        .map(|(whose, one)| (WHOSE[*whose].to_owned(), one.0, one.1, one.2, one.3))
        .collect()
}

/// Two containers a pod.
const WHOSE: [&str; 6] = ["m/p/a", "m/p/b", "n/p/a", "n/p/b", "n/q/a", "n/q/b"];

proptest! {
    #[test]
    fn any_order_of_series_means_what_the_rules_say(
        series in proptest::collection::vec((0..3_usize, 0..6_usize, 0..3_u8, 1..9_u8), 0..30)
    ) {
        let text: String = series
            .iter()
            .map(|(family, whose, value, at)| {
                let family = ["cpu", "memory", "start"][*family];
                container(family, WHOSE[*whose], &format!("{value} {at}"))
            })
            .collect();
        let page = decode(text.as_bytes(), 0, Reading::default()).unwrap();
        let found: Vec<_> = page
            .containers
            .iter()
            .map(|one| {
                let point = one.point;
                let whose = format!("{}/{}/{}", one.namespace, one.pod, one.container);
                (whose, point.cpu, point.memory, point.at, point.start)
            })
            .collect();
        prop_assert_eq!(found, simple(&series));
    }
}
