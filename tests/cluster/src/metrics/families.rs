//! The families of a page of metrics, held against those of metrics-server 0.9.0: `metrics-server/families.txt`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// Type, names of labels and bounds.
#[derive(Debug, PartialEq, Eq, Default)]
struct Family {
    kind: String,
    labels: String,
    bounds: String,
}

/// How many there are. Every family of the file must be on the page, as it is there.
pub fn compare(page: &str, folder: &Path) -> Result<usize> {
    let text = fs::read_to_string(folder.join("families.txt")).context("read families.txt")?;
    let found = families(page);
    let mut count = 0;
    let mut wrong = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let parts: Vec<&str> = line.split(' ').collect();
        let [name, kind, labels, bounds] = parts[..] else {
            anyhow::bail!("{line:?} in families.txt");
        };
        count += 1;
        let expected = Family {
            kind: kind.to_owned(),
            labels: labels.to_owned(),
            bounds: bounds.to_owned(),
        };
        match found.get(name) {
            None => wrong.push(format!("{name} is missing")),
            Some(found) if *found != expected => {
                wrong.push(format!("{name}: {expected:?} is {found:?}"));
            }
            Some(_) => {}
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(count)
}

fn families(page: &str) -> BTreeMap<&str, Family> {
    let mut all = BTreeMap::new();
    let mut current = "";
    for line in page.lines() {
        if let Some((name, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|rest| rest.split_once(' '))
        {
            current = name;
            let family = Family {
                kind: kind.to_owned(),
                labels: "-".to_owned(),
                bounds: "-".to_owned(),
            };
            all.insert(name, family);
            continue;
        }
        let Some(family) = all.get_mut(current).filter(|_| !line.starts_with('#')) else {
            continue;
        };
        let pairs = pairs(line);
        let names = pairs.iter().map(|(name, _)| *name);
        let names: Vec<&str> = names.filter(|name| *name != "le").collect();
        if !names.is_empty() {
            family.labels = names.join(",");
        }
        let bound = pairs.iter().find(|(name, _)| *name == "le");
        let Some((_, bound)) = bound.filter(|(_, bound)| *bound != "+Inf") else {
            continue;
        };
        match family.bounds.as_str() {
            "-" => family.bounds = (*bound).to_owned(),
            known if known.split(',').any(|one| one == *bound) => {}
            known => family.bounds = format!("{known},{bound}"),
        }
    }
    all
}

/// Names and values; no value of these has a quote in it.
fn pairs(line: &str) -> Vec<(&str, &str)> {
    let inside = line
        .split_once('{')
        .and_then(|(_, rest)| rest.rsplit_once('}'));
    let Some((mut rest, _)) = inside else {
        return Vec::new();
    };
    let mut pairs = Vec::new();
    while let Some((name, after)) = rest.split_once("=\"") {
        let Some((value, more)) = after.split_once('"') else {
            break;
        };
        pairs.push((name.trim_start_matches(','), value));
        rest = more;
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_page_says() {
        let page = "# HELP a x\n# TYPE a histogram\na_bucket{n=\"1\",le=\"0.5\"} 1\na_bucket{n=\"1\",le=\"+Inf\"} 1\n\
                    a_sum{n=\"1\"} 0\n# TYPE b gauge\nb 1\n";
        let found = families(page);
        assert_eq!(found["a"].labels, "n");
        assert_eq!(found["a"].bounds, "0.5");
        assert_eq!(
            (found["b"].kind.as_str(), found["b"].labels.as_str()),
            ("gauge", "-")
        );
    }
}
