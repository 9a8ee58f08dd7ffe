//! The crates' dependencies are those that ARCHITECTURE.md states. Dev-dependencies do not count: a role's tests may
//! start a server.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

const BEGIN: &str = "<!-- crate graph -->";
const END: &str = "<!-- end of the crate graph -->";

/// A crate's folder and name, and the crates of ours that it depends on.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// Rows `` | `folder/name` | `a`, `b` | `` between the marks.
fn stated(document: &str) -> Graph {
    let (_, rest) = document
        .split_once(BEGIN)
        .expect("the mark before the table");
    let (table, _) = rest.split_once(END).expect("the mark after the table");
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        let names = |cell: &str| -> Vec<String> {
            let parts = cell.split('`').skip(1).step_by(2);
            parts.map(str::to_owned).collect()
        };
        let [crate_name] = names(cells[0]).try_into().expect("one crate a row");
        (crate_name, names(cells[1]).into_iter().collect())
    })
    .collect()
}

fn name_of(package: &str) -> String {
    package
        .strip_prefix("plimsoll-")
        .unwrap_or(package)
        .to_owned()
}

/// What `cargo metadata` says of the packages under `crates/`.
fn declared(metadata: &Value) -> Graph {
    let root = metadata["workspace_root"].as_str().unwrap();
    let crates = Path::new(root).join("crates");
    let mut graph = Graph::new();
    for package in metadata["packages"].as_array().unwrap() {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let Ok(folder) = manifest.strip_prefix(&crates) else {
            continue;
        };
        let dependencies = package["dependencies"].as_array().unwrap();
        let ours = dependencies
            .iter()
            .filter(|dependency| dependency["path"].is_string() && dependency["kind"] != "dev")
            .map(|dependency| name_of(dependency["name"].as_str().unwrap()));
        let folder = folder.parent().unwrap().to_str().unwrap();
        graph.insert(folder.to_owned(), ours.collect());
    }
    graph
}

fn layer(crate_name: &str) -> usize {
    let folder = crate_name.split_once('/').map(|(folder, _)| folder);
    match folder {
        Some("kube") => 0,
        Some("machine") => 1,
        Some("roles" | "embedded") => 2,
        _ => 3,
    }
}

/// What the two graphs say differently, and what points up.
fn objections(stated: &Graph, declared: &Graph) -> Vec<String> {
    let mut objections = Vec::new();
    for name in stated.keys().filter(|name| !declared.contains_key(*name)) {
        objections.push(format!(
            "{name} is in ARCHITECTURE.md, but there is no such crate"
        ));
    }
    let folders: BTreeMap<&str, &str> = declared
        .keys()
        .map(|folder| (folder.rsplit('/').next().unwrap_or(folder), folder.as_str()))
        .collect();
    for (name, has) in declared {
        let Some(may) = stated.get(name) else {
            objections.push(format!("{name} is not in ARCHITECTURE.md"));
            continue;
        };
        for more in has.difference(may) {
            objections.push(format!(
                "{name} depends on {more}, which ARCHITECTURE.md does not state"
            ));
        }
        for less in may.difference(has) {
            objections.push(format!(
                "{name} does not depend on {less}; ARCHITECTURE.md states it"
            ));
        }
        for dependency in has {
            let folder = folders
                .get(dependency.as_str())
                .copied()
                .unwrap_or_default();
            if layer(folder) > layer(name) {
                objections.push(format!(
                    "{name} depends on {folder}, which is in a layer above"
                ));
            }
        }
    }
    objections
}

#[test]
fn the_crates_depend_on_each_other_as_written_down() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--offline",
            "--no-deps",
            "--format-version",
            "1",
        ])
        .current_dir(root)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let document = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let objections = objections(&stated(&document), &declared(&metadata));
    assert!(objections.is_empty(), "{}", objections.join("\n"));
}

#[test]
fn differences_are_found() {
    let document = format!(
        "x\n{BEGIN}\n\n| crate | depends on |\n|---|---|\n| `kube/a` | |\n| `machine/b` | `a`, `c` |\n| `gone` | |\n{END}\n"
    );
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let declared: Graph = [
        ("kube/a".to_owned(), set(&["b"])),
        ("machine/b".to_owned(), set(&["a"])),
        ("new".to_owned(), set(&[])),
    ]
    .into();
    assert_eq!(
        objections(&stated(&document), &declared),
        [
            "gone is in ARCHITECTURE.md, but there is no such crate",
            "kube/a depends on b, which ARCHITECTURE.md does not state",
            "kube/a depends on machine/b, which is in a layer above",
            "machine/b does not depend on c; ARCHITECTURE.md states it",
            "new is not in ARCHITECTURE.md",
        ]
    );
}
