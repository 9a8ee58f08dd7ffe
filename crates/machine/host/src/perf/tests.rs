use super::counters::decode_group;
use super::*;
use crate::machine::Topology;
use crate::{Descriptors, HostRoot, ReadBuf};
use proptest::prelude::*;

fn group(events: &[&str]) -> EventGroup {
    EventGroup {
        events: events.iter().map(|name| (*name).to_owned()).collect(),
    }
}

fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, HostRoot) {
    let temp = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = temp.path().join("sys/bus/event_source/devices").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let root = HostRoot::new(temp.path());
    (temp, root)
}

#[test]
fn names_in_all_spellings() {
    let code = |name| generic_event(name).map(|code| (code.kind, code.config[0]));
    assert_eq!(code("instructions"), Some((0, 1)));
    assert_eq!(code("PERF_COUNT_HW_BRANCH_MISSES"), Some((0, 5)));
    assert_eq!(code("perf::CACHE-MISSES"), Some((0, 3)));
    assert_eq!(code("context-switches"), Some((1, 3)));
    assert_eq!(code("PERF_COUNT_SW_PAGE_FAULTS"), Some((1, 2)));
    assert_eq!(code("LLC-load-misses"), Some((3, 2 | 1 << 16)));
    assert_eq!(code("L1-dcache-stores"), Some((3, 1 << 8)));
    assert_eq!(code("INST_RETIRED:ANY"), None);
    assert_eq!(code(""), None);
}

#[test]
fn readings_are_scaled_by_the_time_on_the_hardware() {
    let bytes = |words: &[u64]| -> Vec<u8> { words.iter().flat_map(|w| w.to_ne_bytes()).collect() };
    let counted = bytes(&[2, 100, 25, 10, 7]);
    let reading = decode_group(&counted, 2).unwrap();
    assert_eq!(reading.scaled().collect::<Vec<_>>(), [40, 28]);
    assert!((reading.scaling_ratio() - 0.25).abs() < 1e-9);
    let never = bytes(&[1, 100, 0, 3]);
    let never = decode_group(&never, 1).unwrap();
    assert!((never.scaling_ratio() - 1.0).abs() < 1e-9);
    assert_eq!(never.scaled().collect::<Vec<_>>(), [3]);
    assert!(decode_group(&bytes(&[1, 100, 0]), 1).is_none());
    assert!(decode_group(&bytes(&[2, 1, 1, 5]), 1).is_none());
}

#[test]
fn events_that_units_name_themselves() {
    let (_temp, root) = tree(&[
        ("uncore_imc_0/type", "14\n"),
        ("uncore_imc_0/cpumask", "0,16\n"),
        ("uncore_imc_0/format/event", "config:0-7\n"),
        ("uncore_imc_0/format/umask", "config:8-15\n"),
        ("uncore_imc_0/format/split", "config1:0-3,60-63\n"),
        (
            "uncore_imc_0/events/cas_count_read",
            "event=0x04,umask=0x03\n",
        ),
        (
            "uncore_imc_0/events/odd",
            "event=1,split=0xab,config2=0x7\n",
        ),
        ("uncore_imc_0/events/bad", "event=1,none=2\n"),
        ("cpu/type", "4\n"),
    ]);
    let mut buf = ReadBuf::default();
    let units = pmus(&root, &mut buf).unwrap();
    assert_eq!(units.len(), 2);
    let imc = &units[1];
    assert_eq!((imc.kind, &*imc.cpus), (14, [0, 16].as_slice()));
    assert!(imc.is_uncore() && !units[0].is_uncore());
    let mut event = |name| imc.event(name, &mut buf);
    let code = event("cas_count_read").unwrap().unwrap();
    assert_eq!((code.kind, code.config), (14, [0x304, 0, 0]));
    let code = event("odd").unwrap().unwrap();
    assert_eq!(code.config, [1, 0xa << 60 | 0xb, 7]);
    assert!(event("bad").unwrap_err().to_string().contains("no term"));
    assert_eq!(event("none").unwrap(), None);
    assert_eq!(event("../type").unwrap(), None);
}

#[test]
fn uncore_groups_that_cannot_be() {
    let (_temp, root) = tree(&[]);
    let mut buf = ReadBuf::default();
    let set = EventSet::default();
    let none = UncoreCounters::open(
        &root,
        &set,
        &Topology::default(),
        &Descriptors::new(99),
        &mut buf,
    )
    .unwrap();
    assert!(none.is_none());

    let (_temp, root) = tree(&[
        ("uncore_imc_0/type", "14\n"),
        ("uncore_imc_0/cpumask", "0\n"),
        ("uncore_cha_0/type", "15\n"),
        ("uncore_cha_0/cpumask", "0\n"),
    ]);
    let set = EventSet {
        groups: vec![
            group(&["uncore_imc/cas_count_read"]),
            group(&["mixed", "uncore_cha/x"]),
            group(&["no_unit"]),
        ],
        custom: vec![CustomEvent {
            kind: 14,
            config: vec![0x304],
            name: "mixed".to_owned(),
        }],
    };
    let opened = UncoreCounters::open(
        &root,
        &set,
        &Topology::default(),
        &Descriptors::new(99),
        &mut buf,
    );
    let opened = opened.unwrap().unwrap();
    let why: Vec<String> = opened.refused.iter().map(|r| r.why.to_string()).collect();
    assert_eq!(
        why,
        [
            "this machine cannot count \"uncore_imc/cas_count_read\"",
            "uncore_cha/x and mixed are counted by different units",
            "this machine cannot count \"no_unit\"",
        ]
    );
    let mut out = Vec::new();
    opened.counters.read(&mut out).unwrap();
    assert!(out.is_empty());
}

#[test]
fn unknown_names_are_refused_group_by_group() {
    let (temp, root) = tree(&[]);
    let set = EventSet {
        groups: vec![group(&["no-such-event"]), group(&["instructions"])],
        custom: Vec::new(),
    };
    // A plain directory is no cgroup, so the kernel refuses the known event as well.
    let mut buf = ReadBuf::default();
    let opened = CgroupCounters::open(
        &root,
        temp.path(),
        &set,
        &[0],
        &Descriptors::new(99),
        &mut buf,
    )
    .unwrap();
    assert_eq!(opened.refused.len(), 2);
    assert_eq!(
        opened.refused[0].why.to_string(),
        "this machine cannot count \"no-such-event\""
    );
    assert!(opened.counters.is_empty() && opened.counters.events().is_empty());
    let missing = temp.path().join("none");
    let error = CgroupCounters::open(&root, &missing, &set, &[0], &Descriptors::new(99), &mut buf)
        .unwrap_err();
    assert!(error.is_gone());
}

#[test]
fn this_machine_counts_software_events_if_it_may() {
    let root = HostRoot::new("/");
    let mut buf = ReadBuf::default();
    let hierarchies = crate::cgroup::Hierarchies::detect(&root, &mut buf);
    let dir = hierarchies
        .ok()
        .and_then(|h| h.dir(crate::cgroup::Controller::PerfEvent, "/"));
    let Some(dir) = dir else { return };
    let set = EventSet {
        groups: vec![group(&["context-switches", "page-faults"])],
        custom: Vec::new(),
    };
    let Ok(opened) = CgroupCounters::open(&root, &dir, &set, &[0], &Descriptors::new(99), &mut buf)
    else {
        return;
    };
    let mut out = Vec::new();
    opened.counters.read(&mut out).unwrap();
    // Without the privilege the group is refused, and nothing is read.
    assert_eq!(out.len() + 2 * opened.refused.len(), 2);
}

proptest! {
    #[test]
    fn any_group_survives(values in prop::collection::vec(any::<u64>(), 0..8), enabled: u64, running: u64) {
        let mut words = vec![values.len() as u64, enabled, running];
        words.extend(&values);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let reading = decode_group(&bytes, values.len()).unwrap();
        let scaled: Vec<u64> = reading.scaled().collect();
        prop_assert_eq!(scaled.len(), values.len());
        if enabled >= running {
            prop_assert!(scaled.iter().zip(&values).all(|(scaled, value)| scaled >= value));
        }
    }

    #[test]
    fn any_terms_survive(event: u64, umask: u64) {
        let text = format!("event={event:#x},umask={umask},any\n");
        let terms = parse_event_terms(text.as_bytes()).unwrap();
        let expected = [("event", event), ("umask", umask), ("any", 1)];
        prop_assert_eq!(terms, expected.map(|(name, value)| (name.to_owned(), value)));
    }

    #[test]
    fn no_input_panics(text: Vec<u8>, events in 0_usize..9) {
        let _ = decode_group(&text, events);
        let _ = parse_event_terms(&text);
        let _ = parse_format(&text);
        let _ = generic_event(&String::from_utf8_lossy(&text));
    }
}
