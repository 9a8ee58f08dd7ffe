//! Whole pages, to the letter as they were when each was put together in memory: the sums were taken then.

use std::io::{self, Write};
use std::sync::Arc;

use super::fixture::{few, many};
use super::*;

fn gathered(observer: &Arc<Observer>, dialect: Dialect) -> Containers {
    let exporter = Exporter::new(Arc::clone(observer), LabelPolicy::default());
    exporter.containers(dialect, &observer.store.all())
}

fn written(containers: Containers) -> Sum {
    let mut page = Gathered::default();
    page.containers(containers, "container_scrape_error", Text::default());
    let mut sum = Sum::default();
    let mut writer = TextWriter::new(&mut sum);
    page.write(&mut writer).unwrap();
    writer.finish().unwrap();
    sum
}

/// What of a page that is too large to be looked at is compared.
#[derive(Debug)]
struct Sum {
    length: usize,
    /// FNV-1a.
    hash: u64,
    largest_piece: usize,
}

impl Default for Sum {
    fn default() -> Self {
        Self {
            length: 0,
            hash: 0xcbf2_9ce4_8422_2325,
            largest_piece: 0,
        }
    }
}

impl Write for Sum {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.length += bytes.len();
        self.largest_piece = self.largest_piece.max(bytes.len());
        for byte in bytes {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_page_to_the_letter() {
    let mut page = Gathered::default();
    let containers = gathered(&few(), Dialect::Kubelet);
    page.containers(containers, "container_scrape_error", Text::default());
    let expected = include_str!("../../testdata/exposition/kubelet.txt");
    for (found, expected) in page.to_string().lines().zip(expected.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(page.to_string().len(), expected.len());
}

#[test]
fn every_family_and_awkward_labels() {
    let sum = written(gathered(&few(), Dialect::Cadvisor));
    assert_eq!((sum.length, sum.hash), (187_919, 0xc922_444a_4c49_1da6));
}

/// However large the page, what is held for it is small, and it comes in small pieces.
#[test]
fn a_large_page_takes_little_room() {
    let observer = many(300, 10);
    for (dialect, length, hash) in [
        (Dialect::Cadvisor, 30_528_735, 0xe009_8f80_7234_86ce),
        (Dialect::Kubelet, 11_034_557, 0x36a8_667e_b238_be6b),
    ] {
        let containers = gathered(&observer, dialect);
        let room = containers.size();
        assert!(room < 1 << 20, "{dialect:?}: {room} bytes are held");
        let sum = written(containers);
        assert_eq!((sum.length, sum.hash), (length, hash), "{dialect:?}");
        assert!(sum.largest_piece <= 64 << 10, "{}", sum.largest_piece);
    }
}

/// The page is of the moment when it was gathered, whatever happens while it is read.
#[test]
fn what_changes_while_a_page_is_written_is_not_on_it() {
    let observer = few();
    let containers = gathered(&observer, Dialect::Cadvisor);
    for container in observer.store.all() {
        let mut state = container.lock();
        state.latest.clear();
        state.sampled = false;
    }
    observer.store.remove("/");
    let sum = written(containers);
    assert_eq!((sum.length, sum.hash), (187_919, 0xc922_444a_4c49_1da6));
}

#[test]
fn another_family_goes_where_it_sorts() {
    let mut between = Text::default();
    between.single(
        "container_scrape_error",
        Kind::Gauge,
        "Of listing.",
        number::Number::Whole(0),
    );
    let mut page = Gathered::default();
    let containers = gathered(&few(), Dialect::Cadvisor);
    page.containers(containers, "container_scrape_error", between);
    let page = page.to_string();
    let names: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("# HELP "))
        .collect();
    assert!(names.is_sorted() && names.contains(&"container_scrape_error Of listing."));
}

#[test]
fn listed_families() {
    let mut text = Text::default();
    text.single("a", Kind::Gauge, "Of a.", number::Number::Float(0.5));
    text.family("b_total", Kind::Counter, "Of b.")
        .series(&[("x", "q\"uo\\te\nd")], number::Number::Millis(1500), None)
        .series(
            &[("x", "y"), ("z", "")],
            number::Number::Whole(0),
            Some(plimsoll_host::Timestamp(-1_000_000)),
        );
    text.family("none", Kind::Gauge, "Has no series.");
    assert_eq!(
        Gathered::from(text).to_string(),
        concat!(
            "# HELP a Of a.\n# TYPE a gauge\na 0.5\n",
            "# HELP b_total Of b.\n# TYPE b_total counter\n",
            "b_total{x=\"q\\\"uo\\\\te\\nd\"} 1.5\nb_total{x=\"y\",z=\"\"} 0 -1\n",
            "# HELP none Has no series.\n# TYPE none gauge\n",
        )
    );
}

/// However many labels containers bring along: a line is no longer for it than the limits say.
#[test]
fn labels_without_end_are_bounded() {
    let observer = many(3, 3000);
    let exporter = Exporter::new(Arc::clone(&observer), LabelPolicy::default());
    let page = exporter.containers(Dialect::Cadvisor, &observer.store.all());
    let mut gathered = Gathered::default();
    gathered.containers(page, "container_scrape_error", Text::default());
    let text = gathered.to_string();
    let longest = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(str::len)
        .max();
    assert!(longest.unwrap() < bounds::MOST_NAMES * 120, "{longest:?}");
    assert!(exporter.left_out().names > 2000);
    let all_named = |line: &str| line.contains(",id=\"") && line.contains(",name=\"");
    let mut lines = text
        .lines()
        .filter(|line| line.starts_with("container_") && line.contains('{'));
    assert!(lines.all(all_named));
}
