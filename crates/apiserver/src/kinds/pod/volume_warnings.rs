//! Volumes whose files would be written over each other.

use crate::field::quote;
use crate::kinds::at::At;

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

    /// One is the other, or a folder above it.
    fn overlaps(&self, other: &Target<'_>) -> bool {
        let holds = |outer: &str, inner: &str| {
            inner
                .strip_prefix(outer)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        !self.path.is_empty()
            && !other.path.is_empty()
            && (holds(self.path, other.path) || holds(other.path, self.path))
    }
}

pub fn for_volume(volume: &At<'_>) -> Vec<String> {
    let mut out = Vec::new();
    let name = quote(volume.get("name").text());
    let mut overlapping = |of: &str, targets: &[Target<'_>]| {
        for (index, target) in targets.iter().enumerate() {
            for other in &targets[..index] {
                if target.overlaps(other) {
                    out.push(format!(
                        "volume {name} ({of}): overlapping paths: {} with {}",
                        target.shown(),
                        other.shown()
                    ));
                }
            }
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
