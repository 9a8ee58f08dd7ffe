//! Volumes whose files would be written over each other.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::kinds::at::At;
use plimsoll_golang::strconv::quote;

/// A path within a volume, and what it comes from where a volume has several sources.
struct Target<'v> {
    path: &'v str,
    source: String,
}

impl Target<'_> {
    fn shown(&self) -> String {
        let path = quote(self.path);
        if self.source.is_empty() {
            path
        } else {
            format!("{path} ({})", self.source)
        }
    }
}

/// No path of a file is longer, nor that of a folder above one.
const LONGEST_PATH: usize = 4096;
/// Nobody reads more of them.
const MOST_TOLD: usize = 1000;

/// The paths that were met, sorted, with where.
#[derive(Default)]
struct Paths<'v>(BTreeMap<&'v str, Vec<usize>>);

impl<'v> Paths<'v> {
    fn note(&mut self, index: usize, path: &'v str) {
        self.0.entry(path).or_default().push(index);
    }

    /// In order: those that are the path itself, a folder above it, or below it.
    fn overlapping(&self, path: &str) -> Vec<usize> {
        let folders = path.match_indices('/').map(|(at, _)| at);
        let folders = folders.take_while(|at| *at <= LONGEST_PATH);
        let above = folders.map(|at| &path[..at]).chain([path]);
        let above = above.filter_map(|folder| self.0.get(folder));
        let inside = format!("{path}/");
        let from = (Bound::Included(inside.as_str()), Bound::Unbounded);
        let below = self.0.range::<str, _>(from);
        let below = below.take_while(|(other, _)| other.starts_with(&inside));
        let all = above.chain(below.map(|(_, indexes)| indexes));
        let mut all: Vec<usize> = all.flatten().copied().collect();
        all.sort_unstable();
        all
    }
}

pub fn for_volume(volume: &At<'_>) -> Vec<String> {
    let mut out = Vec::new();
    let name = quote(volume.get("name").text());
    let mut overlapping = |of: &str, targets: &[Target<'_>]| {
        let mut earlier = Paths::default();
        let named = targets.iter().enumerate();
        for (index, target) in named.filter(|(_, target)| !target.path.is_empty()) {
            for other in earlier.overlapping(target.path) {
                if out.len() >= MOST_TOLD {
                    return;
                }
                out.push(format!(
                    "volume {name} ({of}): overlapping paths: {} with {}",
                    target.shown(),
                    targets[other].shown()
                ));
            }
            earlier.note(index, target.path);
        }
    };
    for (field, title, named) in [
        ("configMap", "ConfigMap", "name"),
        ("secret", "Secret", "secretName"),
        ("downwardAPI", "DownwardAPI", ""),
    ] {
        let source = volume.get(field);
        if source.is_set() {
            overlapping(&titled(title, &source, named), &items(&source, ""));
        }
    }
    let sources = volume.dig(&["projected", "sources"]);
    let targets: Vec<Target<'_>> = sources
        .items()
        .flat_map(|source| projected(&source))
        .collect();
    overlapping("Projected", &targets);
    for _ in sources.items().filter(At::is_empty) {
        out.push(format!("volume {name} (Projected) has no sources provided"));
    }
    out
}

fn titled(title: &str, source: &At<'_>, named: &'static str) -> String {
    match named {
        "" => title.to_owned(),
        field => format!("{title} {}", quote(source.get(field).text())),
    }
}

fn items<'v>(source: &At<'v>, from: &str) -> Vec<Target<'v>> {
    source
        .get("items")
        .items()
        .map(|item| target(&item, from))
        .collect()
}

fn target<'v>(item: &At<'v>, source: &str) -> Target<'v> {
    Target {
        path: item.get("path").text().trim_end_matches('/'),
        source: source.to_owned(),
    }
}

fn projected<'v>(source: &At<'v>) -> Vec<Target<'v>> {
    for (field, title, named) in [
        ("configMap", "ConfigMap", "name"),
        ("secret", "Secret", "name"),
        ("downwardAPI", "DownwardAPI", ""),
    ] {
        let inner = source.get(field);
        if inner.get("items").is_set() {
            return items(&inner, &titled(title, &inner, named));
        }
    }
    let token = source.get("serviceAccountToken");
    if token.is_set() {
        return vec![target(&token, "ServiceAccountToken")];
    }
    Vec::new()
}
