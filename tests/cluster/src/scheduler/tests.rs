//! Every scenario comes out as it was recorded, but for those that are listed, and with any number of threads.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::*;

/// Besides one. A scenario is played with one of these, by its name; with `PLIMSOLL_LONG=1` in the environment, with all.
const THREADS: [usize; 2] = [2, 16];

fn threads(scenario: &Scenario) -> Vec<usize> {
    if std::env::var("PLIMSOLL_LONG").is_ok_and(|value| value == "1") {
        return THREADS.to_vec();
    }
    let sum: usize = scenario.name.bytes().map(usize::from).sum();
    vec![THREADS[sum % THREADS.len()]]
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER)
}

/// The core does as the original did.
fn check_family(family: &str) {
    let folder = folder();
    let open = book::open(&folder.join("open.txt")).unwrap();
    let recordings = book::load(&folder.join("recorded"), family).unwrap();
    let mut scenarios = load(&folder, Some(&format!("{family}/"))).unwrap();
    scenarios.retain(|scenario| scenario.family() == family);
    assert!(!scenarios.is_empty());
    let mut differing = Vec::new();
    for scenario in &scenarios {
        let recorded = recordings
            .get(scenario.short_name())
            .unwrap_or_else(|| panic!("{} was never recorded", scenario.name));
        let alone = replay::replay(scenario, recorded, 1, 1).unwrap();
        let mut found = compare(recorded, &alone);
        if !found.is_empty() {
            // By another choice between nodes that are equally good.
            found = against_core(scenario, recorded).unwrap();
        }
        match (found.is_empty(), open.contains(&scenario.name)) {
            (true, true) => differing.push(format!("{} is not open any more", scenario.name)),
            (false, false) => differing.push(format!("{}:\n{}", scenario.name, found.join("\n"))),
            _ => {}
        }
        for threads in threads(scenario) {
            let together = replay::replay(scenario, recorded, 1, threads).unwrap();
            let found = compare(&alone, &together);
            if !found.is_empty() {
                let found = found.join("\n");
                differing.push(format!(
                    "{} with {threads} threads:\n{found}",
                    scenario.name
                ));
            }
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

/// A test a family, so that they share the machine.
macro_rules! families {
    ($($family:ident),* $(,)?) => {
        $(
            #[test]
            fn $family() {
                check_family(&stringify!($family).replace('_', "-"));
            }
        )*

        const FAMILIES: &[&str] = &[$(stringify!($family)),*];
    };
}

families! {
    alarms,
    amounts,
    company,
    devices,
    devices_events,
    devices_late,
    evictions,
    fit,
    gadgets,
    gangs,
    gangs_more,
    gates,
    last_look,
    lives,
    messages,
    node_affinity,
    nodes,
    pod_affinity,
    points,
    ports,
    preemption,
    preemption_more,
    profiles,
    profiles_more,
    promises,
    queue,
    requeue,
    resize,
    rooms,
    scores,
    second_look_devices,
    second_look_nodes,
    second_look_pods,
    second_look_preemption,
    second_look_spread,
    second_look_storage,
    shelves,
    sizes,
    spread,
    spread_more,
    storage_events,
    storage_more,
    volumes,
}

/// A family that is missing above would never be played.
#[test]
fn every_family_is_played() {
    let scenarios = load(&folder(), None).unwrap();
    let there: BTreeSet<String> = scenarios
        .iter()
        .map(|one| one.family().replace('-', "_"))
        .collect();
    let played: BTreeSet<String> = FAMILIES.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(there, played);
    assert!(
        scenarios.len() >= 1419,
        "only {} scenarios",
        scenarios.len()
    );
}
