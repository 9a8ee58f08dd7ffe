use std::collections::BTreeSet;

use super::*;

/// What is missing by looking at every combination.
fn by_combinations(held: &[Rule], wanted: &[Rule]) -> BTreeSet<String> {
    let atoms = wanted.iter().flat_map(Rule::atoms);
    atoms
        .filter(|atom| !held.iter().any(|rule| rule.covers(atom)))
        .map(|atom| atom.to_string())
        .collect()
}

/// The same of lines, whose verbs are joined.
fn taken_apart(missing: Option<Missing>, wanted: &[Rule]) -> BTreeSet<String> {
    let Some(Missing::Lines { lines, more }) = missing else {
        assert_eq!(missing, None);
        return BTreeSet::new();
    };
    assert_eq!(more, 0);
    let atoms: BTreeSet<String> = wanted
        .iter()
        .flat_map(Rule::atoms)
        .map(|atom| atom.to_string())
        .collect();
    let apart = |line: &String| -> Vec<String> {
        let (what, verbs) = line.split_once("Verbs:[").unwrap();
        let verbs = verbs.trim_end_matches("]}").split(' ');
        let verbs: Vec<String> = verbs
            .map(|verb| format!("{what}Verbs:[{verb}]}}"))
            .collect();
        verbs
    };
    let apart: BTreeSet<String> = lines.iter().flat_map(apart).collect();
    assert!(apart.is_subset(&atoms));
    apart
}

fn some(random: &mut fastrand::Rng, choices: &[&str], most: usize) -> Vec<String> {
    let count = random.usize(..=most);
    (0..count)
        .map(|_| choices[random.usize(..choices.len())].to_owned())
        .collect()
}

fn rule(random: &mut fastrand::Rng) -> Rule {
    const RESOURCES: [&str; 7] = ["*", "p", "p/log", "q/log", "*/log", "p/*", "q"];
    const PATHS: [&str; 7] = ["*", "/a", "/a/b", "/a/*", "/a*", "/", "/a/"];
    Rule {
        verbs: some(random, &["*", "get", "list", "put", "x"], 3),
        api_groups: some(random, &["", "apps", "b", "*"], 3),
        resources: some(random, &RESOURCES, 4),
        resource_names: match random.u8(..3) {
            0 => some(random, &["m", "n", "", "*"], 2),
            _ => Vec::new(),
        },
        non_resource_urls: match random.u8(..4) {
            0 => some(random, &PATHS, 3),
            _ => Vec::new(),
        },
    }
}

#[test]
fn nothing_is_overlooked() {
    let seed = 20_261_119;
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..5000 {
        let rules = |random: &mut fastrand::Rng, most| -> Vec<Rule> {
            (0..random.usize(..most)).map(|_| rule(random)).collect()
        };
        let (held, wanted) = (rules(&mut random, 6), rules(&mut random, 3));
        let found = taken_apart(missing(held.iter(), &wanted), &wanted);
        assert_eq!(
            found,
            by_combinations(&held, &wanted),
            "{held:?} {wanted:?}"
        );
    }
}

fn numbered(word: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{word}{number}")).collect()
}

fn cube(count: usize) -> Rule {
    Rule {
        verbs: numbered("v", count),
        api_groups: numbered("g", count),
        resources: numbered("r", count),
        resource_names: numbered("n", count),
        non_resource_urls: Vec::new(),
    }
}

/// What is there twice is told twice, in the order of the original: names come last.
#[test]
fn repetitions() {
    let list = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let wanted = [Rule {
        verbs: list(&["get", "put"]),
        api_groups: list(&["", ""]),
        resources: list(&["pods"]),
        resource_names: list(&["y", "y"]),
        non_resource_urls: Vec::new(),
    }];
    let Some(Missing::Lines { lines, .. }) = missing([].into_iter(), &wanted) else {
        panic!("nothing was missing");
    };
    let verbs = r#"["get" "get" "put" "put" "get" "get" "put" "put"]"#;
    let line =
        format!(r#"{{APIGroups:[""], Resources:["pods"], ResourceNames:["y"], Verbs:{verbs}}}"#);
    assert_eq!(lines, [line]);
}

/// A refusal of any size is short, and says how much it leaves out.
#[test]
fn large_products_are_not_written_out() {
    let wanted = [cube(20_000)];
    let Some(Missing::Lines { lines, more }) = missing([].into_iter(), &wanted) else {
        panic!("nothing was missing");
    };
    assert!(lines.is_empty());
    assert_eq!(more, 20_000_usize.pow(3));
    let wide = Rule {
        verbs: vec!["get".to_owned()],
        ..cube(3000)
    };
    let missing = missing([].into_iter(), &[wide]).unwrap();
    let text = describe(&missing, "\"u\"", &[]);
    assert!(text.len() < 2 * BYTES, "{}", text.len());
    assert!(text.ends_with(&format!("and {} more", 3000_usize.pow(3) - 1000)));
}

/// Duplicates and whatever is held alike make nothing longer.
#[test]
fn large_products_are_found_to_be_held() {
    let mut wanted = cube(5000);
    wanted.verbs.extend(numbered("v", 5000));
    let halves: Vec<Rule> = [(0, 2500), (2500, 5000)]
        .map(|(from, to)| Rule {
            resources: wanted.resources[from..to].to_vec(),
            ..wanted.clone()
        })
        .into();
    let wanted = [wanted];
    assert_eq!(missing(halves.iter(), &wanted), None);
    let half = missing(halves[..1].iter(), &wanted);
    assert!(matches!(half, Some(Missing::Lines { more, .. }) if more > 0));
}

/// Who makes it hard on purpose is refused.
#[test]
fn what_cannot_be_decided_is_refused() {
    let wanted = [cube(400)];
    let mut random = fastrand::Rng::with_seed(1);
    let half = |random: &mut fastrand::Rng, all: &[String]| -> Vec<String> {
        all.iter().filter(|_| random.bool()).cloned().collect()
    };
    let held: Vec<Rule> = (0..2000)
        .map(|_| Rule {
            verbs: half(&mut random, &wanted[0].verbs),
            api_groups: half(&mut random, &wanted[0].api_groups),
            resources: half(&mut random, &wanted[0].resources),
            resource_names: half(&mut random, &wanted[0].resource_names),
            non_resource_urls: Vec::new(),
        })
        .collect();
    assert_eq!(missing(held.iter(), &wanted), Some(Missing::TooMany));
}

/// Work grows with what is written down, not with what it stands for.
#[test]
fn twice_the_rules_are_twice_the_work() {
    let steps = |count: usize| {
        let wanted = cube(count);
        let having: Vec<Rule> = wanted
            .resources
            .chunks(count / 10)
            .map(|resources| Rule {
                resources: resources.to_vec(),
                ..wanted.clone()
            })
            .collect();
        let mut held = Held::of(having.iter());
        let mut found = Findings::default();
        assert!(held.look_for(&wanted, &mut found).is_ok());
        assert_eq!(found.told(), None);
        STEPS - held.steps
    };
    for count in [1000, 2000, 4000] {
        let (once, twice) = (steps(count), steps(2 * count));
        assert!(twice * 2 <= once * 5, "{once} {twice}");
    }
}
