//! Scenarios played to a real kube-scheduler, written down, and played to our core.

mod book;
mod kinds;
mod profiles;
mod random;
mod real;
mod replay;
mod scenario;
mod seen;
mod shorthand;
mod stored;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use self::book::Family;
use self::real::Rig;
use self::scenario::Scenario;
use self::seen::Seen;

/// How often ours may choose again between nodes that are equally good, until it has chosen as the original did.
const CHOICES: u64 = 40;

/// The folder of scenarios and recordings, below that of the cases.
pub const FOLDER: &str = "scheduler";

fn load(folder: &Path, filter: Option<&str>) -> Result<Vec<Scenario>> {
    let mut scenarios = scenario::load(&folder.join("scenarios"), filter)?;
    ensure!(!scenarios.is_empty(), "no scenario has such a name");
    // A scheduler is started anew for each setup.
    scenarios.sort_by(|one, other| (&one.setup, &one.name).cmp(&(&other.setup, &other.name)));
    Ok(scenarios)
}

/// Plays scenarios to a real scheduler and writes down what it did; `new`: only those without a recording.
pub fn record(folder: &Path, filter: Option<&str>, new: bool, programs: &Path) -> Result<bool> {
    let recordings = folder.join("recorded");
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut scenarios = load(folder, filter)?;
    for scenario in &scenarios {
        let family = scenario.family();
        if !families.contains_key(family) {
            families.insert(family.to_owned(), book::load(&recordings, family)?);
        }
    }
    if new {
        scenarios.retain(|scenario| {
            let family = families.get(scenario.family());
            family.is_none_or(|family| !family.contains_key(scenario.short_name()))
        });
    }
    let mut rig = Rig::start(programs, None)?;
    let mut failed = 0;
    for scenario in &scenarios {
        match rig.play(scenario) {
            Ok(steps) => {
                let family = families.entry(scenario.family().to_owned()).or_default();
                family.insert(scenario.short_name().to_owned(), steps);
                book::write(&recordings, scenario.family(), family)?;
                println!("{}", scenario.name);
            }
            Err(error) => {
                println!("{}: FAILED: {error:#}", scenario.name);
                failed += 1;
            }
        }
    }
    println!(
        "{} scenarios recorded, {failed} failed",
        scenarios.len() - failed
    );
    Ok(failed == 0)
}

/// Who is held against the recordings.
#[derive(Debug, Clone, Copy)]
pub enum Player<'a> {
    Core,
    /// The folder with kube-scheduler and kube-apiserver.
    Real(&'a Path),
    /// `plimsoll scheduler` of this binary, behind the real kube-apiserver of that folder.
    Ours(&'a Path, &'a Path),
}

/// Plays scenarios again and shows every difference.
pub fn check(folder: &Path, filter: Option<&str>, player: Player<'_>) -> Result<bool> {
    let open = book::open(&folder.join("open.txt"))?;
    let mut rig = match player {
        Player::Core => None,
        Player::Real(programs) => Some(Rig::start(programs, None)?),
        Player::Ours(program, programs) => Some(Rig::start(programs, Some(program))?),
    };
    let mut counts: BTreeMap<String, (usize, usize, usize)> = BTreeMap::new();
    for scenario in &load(folder, filter)? {
        let recorded = match recorded(folder, scenario) {
            Ok(recorded) => recorded,
            Err(error) => {
                println!("{error}");
                counts.entry(scenario.family().to_owned()).or_default().2 += 1;
                continue;
            }
        };
        let found = match &mut rig {
            None => against_core(scenario, &recorded),
            Some(rig) => rig.play(scenario).map(|mut steps| {
                // Only the original logs its scores.
                if matches!(player, Player::Ours(..)) {
                    for (step, recorded) in steps.iter_mut().zip(&recorded) {
                        step.scores = recorded.scores.clone();
                    }
                }
                compare(&recorded, &steps)
            }),
        };
        let known = !matches!(player, Player::Real(_)) && open.contains(&scenario.name);
        let count = counts.entry(scenario.family().to_owned()).or_default();
        match found {
            Ok(found) if found.is_empty() => {
                count.0 += 1;
                if known {
                    println!("{}: equal, though listed as open", scenario.name);
                }
                continue;
            }
            Ok(found) => println!(
                "{}: {}\n{}",
                scenario.name,
                scenario.about,
                found.join("\n")
            ),
            Err(error) => println!("{}: {error:#}", scenario.name),
        }
        if known {
            count.1 += 1;
        } else {
            count.2 += 1;
        }
    }
    println!(
        "{:<24} {:>6} {:>6} {:>8}",
        "family", "equal", "open", "differs"
    );
    let mut all = (0, 0, 0);
    for (family, (equal, open, differs)) in &counts {
        println!("{family:<24} {equal:>6} {open:>6} {differs:>8}");
        all = (all.0 + equal, all.1 + open, all.2 + differs);
    }
    println!("{:<24} {:>6} {:>6} {:>8}", "all", all.0, all.1, all.2);
    Ok(all.2 == 0)
}

/// Plays random stories to a real scheduler and to the core. What differs is printed as it would stand in a family's file.
pub fn random(programs: &Path, seed: u64, count: u64) -> Result<bool> {
    let mut rig = Rig::start(programs, None)?;
    let (mut equal, mut differing, mut failed) = (0, 0, 0);
    for seed in seed..seed.saturating_add(count) {
        let told = random::story(seed);
        let scenario = told.scenario(&format!("random/{seed}"))?;
        let played = rig.play(&scenario);
        let played = played.and_then(|theirs| against_core(&scenario, &theirs));
        let played = played.map(|mut found| {
            // How often somebody is tried whose neighbours go one after the other is a matter of time, and the server tells of
            // its services as it likes.
            found
                .retain(|line| !line.contains(": attempts: ") && !line.contains(" event service/"));
            found
        });
        match played {
            Ok(found) if found.is_empty() => equal += 1,
            Ok(found) => {
                differing += 1;
                println!("seed {seed}:\n{}\n{}", found.join("\n"), told.text());
            }
            Err(error) => {
                failed += 1;
                println!("seed {seed}: FAILED: {error:#}");
            }
        }
    }
    println!("{equal} stories equal, {differing} differ, {failed} failed");
    Ok(differing + failed == 0)
}

/// Where the core differs from what was recorded, with the choice between equally good nodes that comes closest.
fn against_core(scenario: &Scenario, recorded: &[Seen]) -> Result<Vec<String>> {
    let mut fewest: Option<Vec<String>> = None;
    for seed in 1..=CHOICES {
        let found = compare(recorded, &replay::replay(scenario, recorded, seed, 1)?);
        if found.is_empty() {
            return Ok(found);
        }
        if fewest
            .as_ref()
            .is_none_or(|least| found.len() < least.len())
        {
            fewest = Some(found);
        }
    }
    Ok(fewest.unwrap_or_default())
}

fn recorded(folder: &Path, scenario: &Scenario) -> Result<Vec<Seen>> {
    let family = book::load(&folder.join("recorded"), scenario.family())?;
    let steps = family.get(scenario.short_name());
    steps
        .cloned()
        .with_context(|| format!("{} was never recorded", scenario.name))
}

fn compare(recorded: &[Seen], ours: &[Seen]) -> Vec<String> {
    let mut found = Vec::new();
    if recorded.len() != ours.len() {
        found.push("the recording is of other steps: record it again".to_owned());
    }
    for (index, (theirs, mine)) in recorded.iter().zip(ours).enumerate() {
        let differences = seen::differences(theirs, mine);
        found.extend(
            differences
                .into_iter()
                .map(|difference| format!("  step {index}: {difference}")),
        );
    }
    found
}

#[cfg(test)]
mod tests;
