//! The store as its users see it, on a disk and through crashes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;

use crate::aggregate::Aggregation;
use crate::{Config, Error, Scratch, SeriesId, Tsdb};

const SECOND: i64 = 1000;
/// A window begins here.
const START: i64 = 1_700_000_400_000;

fn config(folder: &Path) -> Config {
    Config {
        folder: Some(folder.to_owned()),
        ..Config::default()
    }
}

fn opened(folder: &Path) -> Tsdb {
    opened_at(folder, 0)
}

fn opened_at(folder: &Path, second: i64) -> Tsdb {
    Tsdb::open(config(folder), START + second * SECOND)
        .unwrap()
        .0
}

/// A sample a second of one series, its value the second's number; upkeep every ten seconds.
fn fill(store: &Tsdb, id: SeriesId, seconds: std::ops::Range<i64>) {
    for second in seconds {
        let at = START + second * SECOND;
        store.append(at, &[(id, second as f64)]);
        if second % 10 == 9 {
            store.maintain(at);
        }
    }
}

fn values(store: &Tsdb, key: &str, from: i64, to: i64) -> Vec<f64> {
    let Some(id) = store.find(key) else {
        return Vec::new();
    };
    let mut scratch = Scratch::default();
    let samples = store.read(id, START + from * SECOND, START + to * SECOND, &mut scratch);
    assert!(samples.is_sorted_by_key(|sample| sample.at));
    samples.iter().map(|sample| sample.value).collect()
}

/// Equal, without printing thousands of numbers where they are not.
#[track_caller]
fn assert_same(found: &[f64], expected: &[f64]) {
    let differs = (0..found.len().max(expected.len())).find(|&n| found.get(n) != expected.get(n));
    assert!(
        differs.is_none(),
        "{} samples, {} expected, differ from {differs:?} on",
        found.len(),
        expected.len()
    );
}

fn numbers(range: std::ops::Range<i64>) -> Vec<f64> {
    range.map(|number| number as f64).collect()
}

#[test]
fn samples_are_read_from_blocks_and_memory_alike() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path());
    let id = store.series("s", 1.0);
    fill(&store, id, 0..3000);
    let stats = store.stats();
    assert_eq!((stats.series, stats.blocks), (1, 4));
    assert_same(&values(&store, "s", 0, 2999), &numbers(0..3000));
    assert_same(&values(&store, "s", 590, 610), &numbers(590..611));
    assert_same(&values(&store, "s", 1500, 2900), &numbers(1500..2901));
    let mut scratch = Scratch::default();
    let p95 = store.aggregate(
        id,
        START,
        START + 99 * SECOND,
        Aggregation::Percentile(0.95),
        &mut scratch,
    );
    assert_eq!(p95, Some(94.0));
}

#[test]
fn a_killed_process_loses_what_the_journal_had_not() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path());
    let id = store.series("s", 1.0);
    fill(&store, id, 0..1507);
    // Nothing is closed: this is what kill -9 leaves. The lock goes with the process.
    let copy = tempfile::tempdir().unwrap();
    copy_files(folder.path(), copy.path());
    let (store, recovered) = Tsdb::open(config(copy.path()), START + 1507 * SECOND).unwrap();
    assert_eq!(recovered.blocks, 2);
    assert_same(&values(&store, "s", 0, 1507), &numbers(0..1500));
    // And it goes on as if nothing had been.
    let id = store.series("s", 1.0);
    fill(&store, id, 1510..2500);
    assert_same(
        &values(&store, "s", 1400, 2499),
        &[numbers(1400..1500), numbers(1510..2500)].concat(),
    );
    drop(store);
    let store = opened_at(copy.path(), 2500);
    assert_same(
        &values(&store, "s", 1400, 2499),
        &[numbers(1400..1500), numbers(1510..2500)].concat(),
    );
}

#[test]
fn what_is_written_after_half_a_frame_counts() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path());
    let id = store.series("s", 1.0);
    fill(&store, id, 0..100);
    drop(store);
    // The machine lost its power while a frame was being written.
    let (_, journal) = crate::seal::journals(folder.path()).pop().unwrap();
    let bytes = fs::read(&journal).unwrap();
    fs::write(&journal, &bytes[..bytes.len() - 3]).unwrap();
    let store = opened_at(folder.path(), 100);
    assert_same(&values(&store, "s", 0, 100), &numbers(0..90));
    // In the same window, so to the same file.
    let id = store.series("s", 1.0);
    fill(&store, id, 100..200);
    drop(store);
    let store = opened_at(folder.path(), 200);
    let expected = [numbers(0..90), numbers(100..200)].concat();
    assert_same(&values(&store, "s", 0, 200), &expected);
}

#[test]
fn an_orderly_end_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path());
    let id = store.series("s", 1.0);
    fill(&store, id, 0..1507);
    store.close().unwrap();
    drop(store);
    assert_same(
        &values(&opened_at(folder.path(), 1507), "s", 0, 1507),
        &numbers(0..1507),
    );
}

#[test]
fn damage_costs_what_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path());
    let id = store.series("s", 1.0);
    fill(&store, id, 0..2000);
    store.close().unwrap();
    drop(store);
    let mut blocks: Vec<_> = crate::seal::files(folder.path(), "block").collect();
    blocks.sort();
    let bytes = fs::read(&blocks[0]).unwrap();
    fs::write(&blocks[0], &bytes[..bytes.len() - 3]).unwrap();
    fs::write(folder.path().join("7.tmp"), "half a block").unwrap();
    let mut journal = crate::seal::journals(folder.path());
    let (_, last) = journal.pop().unwrap();
    let mut bytes = fs::read(&last).unwrap();
    let length = bytes.len();
    bytes[length - 20] ^= 0xff;
    fs::write(&last, bytes).unwrap();
    let (store, recovered) = Tsdb::open(config(folder.path()), START + 2000 * SECOND).unwrap();
    assert_eq!((recovered.blocks, recovered.bad_blocks), (2, 1));
    assert!(recovered.cut_off > 0);
    let found = values(&store, "s", 0, 2000);
    assert_eq!(found[..1200], numbers(600..1800)[..]);
    assert!(found.len() < 1400);
    assert!(!folder.path().join("7.tmp").exists());
    let aside = blocks[0].with_extension("bad");
    assert!(aside.exists());
    // Until the next start: a bad disk must not be filled with what it spoilt.
    drop(store);
    opened_at(folder.path(), 2000);
    assert!(!aside.exists());
}

#[test]
fn late_samples_find_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path());
    let id = store.series("s", 1.0);
    for second in [0, 2, 4, 1, 3, 4, 5] {
        store.append(START + second * SECOND, &[(id, second as f64 * 10.0)]);
    }
    let appended = store.append(START + 4 * SECOND, &[(id, 99.0)]);
    assert_eq!((appended.late, appended.refused), (1, 0));
    assert_eq!(
        values(&store, "s", 0, 9),
        [0.0, 10.0, 20.0, 30.0, 99.0, 50.0]
    );
    store.append(START + 700 * SECOND, &[(id, 7000.0)]);
    store.maintain(START + 700 * SECOND);
    assert_eq!(store.stats().blocks, 1);
    // That is over.
    let refused = store.append(START + 599 * SECOND, &[(id, 1.0)]);
    assert_eq!(refused.refused, 1);
    store.close().unwrap();
    drop(store);
    let store = opened_at(folder.path(), 900);
    assert_eq!(
        values(&store, "s", 0, 900),
        [0.0, 10.0, 20.0, 30.0, 99.0, 50.0, 7000.0]
    );
}

#[test]
fn a_clock_set_back_is_survived() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path());
    let id = store.series("s", 1.0);
    fill(&store, id, 7000..8000);
    assert_eq!(store.append(START, &[(id, 0.0)]).refused, 1);
    assert!(store.maintain(START).clock_went_back);
    fill(&store, id, 0..1500);
    assert_same(&values(&store, "s", 0, 1500), &numbers(0..1500));
    store.close().unwrap();
    drop(store);
    let store = opened_at(folder.path(), 1500);
    assert_same(&values(&store, "s", 0, 1499), &numbers(0..1500));
    drop(store);
    // What was taken before is there, once it is past.
    let store = opened_at(folder.path(), 8100);
    assert_same(&values(&store, "s", 7000, 7999), &numbers(7000..8000));
}

#[test]
fn a_clock_that_is_a_day_ahead_for_a_minute_costs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path());
    let id = store.series("s", 1.0);
    fill(&store, id, 0..4000);
    let ahead = 86_400;
    fill(&store, id, 4000 + ahead..4060 + ahead);
    fill(&store, id, 4060..4100);
    assert_same(&values(&store, "s", 0, 3999), &numbers(0..4000));
    assert!(values(&store, "s", 4060, 4099).len() >= 30);
    // Where it stays there, what is kept goes by it.
    fill(&store, id, 4100 + ahead..4900 + ahead);
    assert_eq!(values(&store, "s", 0, 3999).len(), 0);
}

#[test]
fn blocks_go_by_age_and_by_size() {
    let folder = tempfile::tempdir().unwrap();
    let by_age = Config {
        keep_for: Duration::from_mins(30),
        ..config(folder.path())
    };
    let (store, _) = Tsdb::open(by_age.clone(), START).unwrap();
    let id = store.series("s", 1.0);
    fill(&store, id, 0..6000);
    assert_eq!(values(&store, "s", 0, 5999).first(), Some(&3600.0));
    let bytes = store.stats().block_bytes;
    drop(store);
    let by_size = Config {
        keep_bytes: bytes / 2,
        ..by_age
    };
    let (store, _) = Tsdb::open(by_size, START + 6000 * SECOND).unwrap();
    assert!(store.maintain(START + 6000 * SECOND).removed_blocks > 0);
    assert!(store.stats().block_bytes <= bytes / 2);
}

#[test]
fn a_series_that_ended_is_forgotten_with_its_last_block() {
    let folder = tempfile::tempdir().unwrap();
    let short = Config {
        keep_for: Duration::from_mins(30),
        ..config(folder.path())
    };
    let (store, _) = Tsdb::open(short, START).unwrap();
    let ended = store.series("ended", 1.0);
    let living = store.series("living", 1.0);
    store.append(START, &[(ended, 1.0)]);
    fill(&store, living, 1..6000);
    assert_eq!(store.stats().series, 1);
    assert_eq!(store.find("ended"), None);
    // Its place is taken by another, which the old name does not reach.
    let other = store.series("other", 1.0);
    assert_ne!(other, ended);
    let at = START + 6000 * SECOND;
    assert_eq!(store.append(at, &[(ended, 1.0), (other, 2.0)]).refused, 1);
    assert_eq!(values(&store, "other", 0, 6001), [2.0]);
}

#[test]
fn however_many_series_come_and_go_memory_is_bounded() {
    const LIMIT: usize = 400_000;
    let folder = tempfile::tempdir().unwrap();
    let narrow = || Config {
        index_bytes: LIMIT,
        ..config(folder.path())
    };
    let (store, _) = Tsdb::open(narrow(), START).unwrap();
    let living = store.series("living", 1.0);
    let mut forgotten = 0;
    let mut most = 0;
    // Every ten seconds five series come that have two samples each.
    for second in 0..4 * 3600 {
        let at = START + second * SECOND;
        store.append(at, &[(living, second as f64)]);
        if second % 10 < 2 {
            let short: Vec<(SeriesId, f64)> = (0..5)
                .map(|n| (store.series(&format!("short{}-{n}", second / 10), 1.0), 1.0))
                .collect();
            store.append(at + 1, &short);
        }
        if second % 10 == 9 {
            forgotten += store.maintain(at).forgotten_series;
            most = most.max(store.stats().index_bytes);
        }
    }
    assert!(forgotten > 3000, "{forgotten}");
    // In memory for minutes are those that came last; they are not forgotten.
    assert!(most < LIMIT + LIMIT / 2, "{most}");
    // What lives has all of its past, and what ended of late is there.
    assert_same(
        &values(&store, "living", 0, 4 * 3600),
        &numbers(0..4 * 3600),
    );
    assert_eq!(values(&store, "short1400-3", 0, 4 * 3600).len(), 2);
    assert_eq!(store.find("short3-0"), None);
    drop(store);
    // The disk has more, of which no more is taken in than before; the newest comes first.
    let (store, _) = Tsdb::open(narrow(), START + 4 * 3600 * SECOND).unwrap();
    assert!(store.stats().index_bytes < LIMIT + LIMIT / 2);
    assert_eq!(store.find("short3-0"), None);
    assert_eq!(values(&store, "short1400-3", 0, 4 * 3600).len(), 2);
    let found = values(&store, "living", 0, 4 * 3600);
    assert!(found.len() > 4 * 3600 - 20, "{}", found.len());
}

#[test]
fn without_a_folder_memory_is_all_there_is() {
    let (store, _) = Tsdb::open(
        Config {
            keep_for: Duration::from_mins(20),
            ..Config::default()
        },
        START,
    )
    .unwrap();
    let id = store.series("s", 1.0);
    fill(&store, id, 0..3000);
    let found = values(&store, "s", 0, 2999);
    assert_eq!(found.last(), Some(&2999.0));
    assert!((1200..1400).contains(&found.len()));
}

#[test]
fn memory_is_bounded_even_if_nothing_can_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let (store, _) = Tsdb::open(
        Config {
            memory_bytes: 100_000,
            ..config(&path)
        },
        START,
    )
    .unwrap();
    // Root may write anywhere, but not into what is not there.
    fs::remove_dir_all(&path).unwrap();
    let ids: Vec<SeriesId> = (0..50)
        .map(|n| store.series(&format!("s{n}"), 0.0))
        .collect();
    let mut lost = 0;
    let mut problems = 0;
    for second in 0..3000 {
        let at = START + second * SECOND;
        let samples: Vec<_> = ids
            .iter()
            .map(|id| (*id, 1.0 / (second + 1) as f64))
            .collect();
        store.append(at, &samples);
        if second % 10 == 0 {
            let done = store.maintain(at);
            lost += done.lost_samples;
            problems += usize::from(done.problem.is_some());
            assert!(store.stats().memory_bytes <= 100_000);
        }
    }
    assert!(lost > 0 && problems > 0);
    // It is still there for what is new, and writes again as soon as it can.
    assert_eq!(values(&store, "s7", 2999, 2999).len(), 1);
    fs::create_dir_all(&path).unwrap();
    let done = store.maintain(START + 3700 * SECOND);
    assert!(done.problem.is_none(), "{done:?}");
    assert!(done.sealed_samples > 0);
}

#[test]
fn a_folder_has_one_user() {
    let folder = tempfile::tempdir().unwrap();
    let _store = opened(folder.path());
    assert!(matches!(
        Tsdb::open(config(folder.path()), START),
        Err(Error::Held { .. })
    ));
}

fn copy_files(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().flatten() {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// Seconds since the last round (or before it), and a value for each series named.
    Round(i64, Vec<(u8, f64)>),
    Maintain,
    /// Closed and opened again.
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let value = prop_oneof![
        (0u32..100_000).prop_map(f64::from),
        any::<f64>().prop_filter("compared", |v| !v.is_nan())
    ];
    let samples = prop::collection::btree_map(0u8..6, value, 1..6);
    let gap = prop_oneof![8 => 1i64..20, 2 => 20i64..400, 1 => -50i64..1];
    prop_oneof![
        12 => (gap, samples).prop_map(|(gap, samples)| Step::Round(gap, samples.into_iter().collect())),
        4 => Just(Step::Maintain),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever happens, what was taken in is read back, in order, each time once.
    #[test]
    fn the_store_is_a_map(steps in prop::collection::vec(step(), 1..150)) {
        let folder = tempfile::tempdir().unwrap();
        let mut store = opened(folder.path());
        let mut expected: BTreeMap<(u8, i64), f64> = BTreeMap::new();
        let mut now = START;
        for step in steps {
            match step {
                Step::Round(gap, samples) => {
                    let at = now + gap * SECOND;
                    now = now.max(at);
                    let batch: Vec<(SeriesId, f64)> = samples.iter().map(|(n, v)| (store.series(&format!("s{n}"), 0.0), *v)).collect();
                    let appended = store.append(at, &batch);
                    if appended.refused == 0 {
                        expected.extend(samples.into_iter().map(|(n, v)| ((n, at), v)));
                    }
                }
                Step::Maintain => {
                    let done = store.maintain(now);
                    prop_assert!(done.problem.is_none());
                }
                Step::Reopen => {
                    store.close().unwrap();
                    drop(store);
                    store = Tsdb::open(config(folder.path()), now).unwrap().0;
                }
            }
        }
        let mut scratch = Scratch::default();
        let mut found = BTreeMap::new();
        for n in 0..6u8 {
            if let Some(id) = store.find(&format!("s{n}")) {
                let samples = store.read(id, i64::MIN, i64::MAX, &mut scratch);
                for sample in samples {
                    prop_assert!(found.insert((n, sample.at), sample.value).is_none());
                }
            }
        }
        prop_assert_eq!(found, expected);
    }
}

#[derive(Debug, Clone)]
enum Mishap {
    /// So many rounds, a second apart, with upkeep every five.
    Rounds(i64),
    /// The clock is set, by so many seconds.
    Clock(i64),
    /// The process is killed, and started again.
    Kill,
    /// The same, and meanwhile a file (the nth) is cut off at a share of its length, or has a byte changed there.
    Damage(usize, f64, bool),
}

fn mishap() -> impl Strategy<Value = Mishap> {
    let clock = prop_oneof![-90_000i64..90_000, -700i64..700, -70i64..70];
    prop_oneof![
        6 => (1i64..900).prop_map(Mishap::Rounds),
        2 => clock.prop_map(Mishap::Clock),
        1 => Just(Mishap::Kill),
        2 => (any::<usize>(), 0.0f64..1.0, any::<bool>())
            .prop_map(|(file, at, cut)| Mishap::Damage(file, at, cut)),
    ]
}

fn damage(folder: &Path, nth: usize, at: f64, cut: bool) {
    let files = fs::read_dir(folder).unwrap().flatten();
    let mut files: Vec<_> = files.map(|entry| entry.path()).collect();
    files.sort();
    let path = &files[nth % files.len()];
    let mut bytes = fs::read(path).unwrap();
    let at = (bytes.len() as f64 * at) as usize;
    match bytes.get_mut(at) {
        Some(byte) if !cut => *byte ^= 0x41,
        _ => bytes.truncate(at),
    }
    fs::write(path, bytes).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Clocks that jump either way, kills and damage in any order: nothing is made up, nothing is told twice, and what
    /// is new is taken in again within a few seconds.
    #[test]
    fn mishaps_cost_no_more_than_they_must(mishaps in prop::collection::vec(mishap(), 1..14)) {
        let folder = tempfile::tempdir().unwrap();
        let mut store = opened(folder.path());
        let mut now = START;
        // Where a clock was set back a time has been twice, with two values.
        let mut appended: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
        let mut number = 0.0;
        let mut round = |store: &Tsdb, now: i64| {
            number += 1.0;
            let id = store.series("s", 1.0);
            let taken = store.append(now, &[(id, number)]).refused == 0;
            appended.entry(now).or_default().push(number);
            taken
        };
        for mishap in mishaps.into_iter().chain([Mishap::Rounds(12)]) {
            match mishap {
                Mishap::Rounds(count) => {
                    for n in 0..count {
                        now += SECOND;
                        let taken = round(&store, now);
                        prop_assert!(taken || n < 6, "round {n} of {count} was refused");
                        if n % 5 == 4 {
                            let done = store.maintain(now);
                            prop_assert!(done.problem.is_none(), "{done:?}");
                        }
                    }
                }
                Mishap::Clock(seconds) => now = (now + seconds * SECOND).max(SECOND),
                Mishap::Kill => {
                    drop(store);
                    store = Tsdb::open(config(folder.path()), now).unwrap().0;
                }
                Mishap::Damage(file, at, cut) => {
                    drop(store);
                    damage(folder.path(), file, at, cut);
                    store = Tsdb::open(config(folder.path()), now).unwrap().0;
                }
            }
        }
        let id = store.find("s").unwrap();
        let mut scratch = Scratch::default();
        let samples = store.read(id, i64::MIN, i64::MAX, &mut scratch);
        let times: Vec<i64> = samples.iter().map(|sample| sample.at).collect();
        prop_assert!(times.is_sorted_by(|a, b| a < b), "a time is told twice");
        for sample in samples {
            let said = appended.get(&sample.at);
            prop_assert!(said.is_some_and(|said| said.contains(&sample.value)), "{sample:?}");
        }
        prop_assert!(times.binary_search(&now).is_ok(), "the newest is missing");
    }
}
