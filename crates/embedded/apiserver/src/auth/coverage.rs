//! Which of some permissions others do not give. Rules are products of lists, and the lists come from anybody, so
//! products are not written out: what the same held rules speak of is looked at together, and what remains is bounded.

use rustc_hash::{FxHashMap, FxHashSet};

use super::rules::{Rule, quoted_list};

/// So many combinations are looked at one by one.
const FEW: usize = 10_000;
/// What may be compared with what, in all.
const STEPS: usize = 20_000_000;
/// What is missing is told in so many lines, of so many bytes together.
const LINES: usize = 1000;
const BYTES: usize = 64 << 10;

/// What is missing, in words.
#[derive(Debug, PartialEq, Eq)]
pub enum Missing {
    Lines {
        lines: Vec<String>,
        /// Lines that are not told.
        more: usize,
    },
    /// It takes too long to say.
    TooMany,
}

/// Rules that somebody has, by what they speak of.
struct Held<'a> {
    count: usize,
    groups: Part<'a>,
    resources: Part<'a>,
    verbs: Part<'a>,
    names: Part<'a>,
    paths: Part<'a>,
    /// Lengths of the paths that stand for all that begin so.
    lengths: Vec<usize>,
    steps: usize,
}

/// The rules that have something in a list of theirs.
#[derive(Default)]
struct Part<'a> {
    /// Those that have everything.
    all: Vec<bool>,
    of: FxHashMap<&'a str, Vec<u32>>,
    /// Of beginnings, for paths.
    beginning: FxHashMap<&'a str, Vec<u32>>,
}

/// Elements of a list that the same rules have.
struct Class<'w> {
    members: Vec<&'w str>,
    /// A name that is there so often is told as often with each verb.
    times: usize,
    /// Beside those that have everything.
    rules: Vec<u32>,
}

/// The budget is spent.
struct Spent;

/// What of `wanted` nobody gives who has `held`; `None`: it is all there.
pub fn missing<'a>(held: impl Iterator<Item = &'a Rule>, wanted: &[Rule]) -> Option<Missing> {
    let mut held = Held::of(held);
    let mut found = Findings::default();
    for rule in wanted {
        let looked = held.look_for(rule, &mut found);
        let looked = looked.and_then(|()| held.look_for_paths(rule, &mut found));
        if looked.is_err() {
            return Some(Missing::TooMany);
        }
    }
    found.told()
}

impl<'a> Part<'a> {
    fn add(&mut self, index: u32, element: &'a str, is_all: bool) {
        if is_all {
            self.all[index as usize] = true;
            return;
        }
        let rules = self.of.entry(element).or_default();
        if rules.last() != Some(&index) {
            rules.push(index);
        }
    }

    fn rules(&self, element: &str) -> &[u32] {
        self.of.get(element).map_or(&[], Vec::as_slice)
    }
}

impl<'a> Held<'a> {
    fn of(rules: impl Iterator<Item = &'a Rule>) -> Self {
        // Who is bound to a role twice has it once.
        let mut seen = FxHashSet::default();
        let rules: Vec<&Rule> = rules.filter(|rule| seen.insert(*rule)).collect();
        let part = || Part {
            all: vec![false; rules.len()],
            ..Part::default()
        };
        let mut held = Self {
            count: rules.len(),
            groups: part(),
            resources: part(),
            verbs: part(),
            names: part(),
            paths: part(),
            lengths: Vec::new(),
            steps: STEPS,
        };
        let mut lengths = FxHashSet::default();
        for (index, rule) in (0..).zip(rules) {
            for (part, list) in [
                (&mut held.groups, &rule.api_groups),
                (&mut held.resources, &rule.resources),
                (&mut held.verbs, &rule.verbs),
            ] {
                list.iter().for_each(|one| part.add(index, one, one == "*"));
            }
            let names = &rule.resource_names;
            held.names.all[index as usize] = names.is_empty();
            names
                .iter()
                .for_each(|one| held.names.add(index, one, false));
            for url in &rule.non_resource_urls {
                held.paths.add(index, url, false);
                if url.ends_with('*') {
                    let beginning = url.trim_end_matches('*');
                    let rules = held.paths.beginning.entry(beginning).or_default();
                    rules.push(index);
                    lengths.insert(beginning.len());
                }
            }
        }
        held.lengths = lengths.into_iter().collect();
        held.lengths.sort_unstable();
        held
    }

    fn spend(&mut self, steps: usize) -> Result<(), Spent> {
        self.steps = self.steps.checked_sub(steps + 1).ok_or(Spent)?;
        Ok(())
    }

    fn look_for(&mut self, rule: &Rule, found: &mut Findings) -> Result<(), Spent> {
        let lists = [&rule.api_groups, &rule.resources, &rule.verbs];
        let names = rule.resource_names.len().max(1);
        let combinations = lists
            .iter()
            .fold(names, |product, list| product.saturating_mul(list.len()));
        let few = combinations <= FEW;
        let groups = self.classes(&rule.api_groups, few, |held, one| {
            held.groups.rules(one).to_vec()
        })?;
        let resources = self.classes(&rule.resources, few, |held, one| held.of_resource(one))?;
        let verbs = self.classes(&rule.verbs, few, |held, one| held.verbs.rules(one).to_vec())?;
        let mut names = self.names(&rule.resource_names, few)?;
        if rule.resource_names.is_empty() {
            // All names are had by those rules only that name none.
            names.push(Class {
                members: Vec::new(),
                times: 1,
                rules: Vec::new(),
            });
        }
        let everything: Vec<u32> = (0..).take(self.count).collect();
        for group in &groups {
            let of_group = self.meet(&everything, |held| &held.groups, &group.rules)?;
            for resource in &resources {
                let of_resource = self.meet(&of_group, |held| &held.resources, &resource.rules)?;
                for name in &names {
                    let of_name = self.meet(&of_resource, |held| &held.names, &name.rules)?;
                    let mut lacking: Vec<&Class<'_>> = Vec::new();
                    for verb in &verbs {
                        let left = self.meet(&of_name, |held| &held.verbs, &verb.rules)?;
                        if left.is_empty() {
                            lacking.push(verb);
                        }
                    }
                    found.note(group, resource, name, &lacking);
                }
            }
        }
        Ok(())
    }

    fn look_for_paths(&mut self, rule: &Rule, found: &mut Findings) -> Result<(), Spent> {
        let few = rule
            .non_resource_urls
            .len()
            .saturating_mul(rule.verbs.len())
            <= FEW;
        let lengths = self.lengths.len();
        self.spend(rule.non_resource_urls.len().saturating_mul(lengths))?;
        let paths = self.classes(&rule.non_resource_urls, few, |held, one| held.of_path(one))?;
        let verbs = self.classes(&rule.verbs, few, |held, one| held.verbs.rules(one).to_vec())?;
        let everything: Vec<u32> = (0..).take(self.count).collect();
        // What is for some names only is not for paths.
        let unnamed = self.meet(&everything, |held| &held.names, &[])?;
        for path in &paths {
            let of_path = self.meet(&unnamed, |held| &held.paths, &path.rules)?;
            for verb in &verbs {
                if self
                    .meet(&of_path, |held| &held.verbs, &verb.rules)?
                    .is_empty()
                {
                    found.note_path(path, verb);
                }
            }
        }
        Ok(())
    }

    /// The rules that speak of a resource by its name, or of its subresource for all resources.
    fn of_resource(&self, resource: &str) -> Vec<u32> {
        let mut rules = self.resources.rules(resource).to_vec();
        if let Some((_, subresource)) = resource.split_once('/') {
            rules.extend_from_slice(self.resources.rules(&format!("*/{subresource}")));
            rules.sort_unstable();
            rules.dedup();
        }
        rules
    }

    fn of_path(&self, path: &str) -> Vec<u32> {
        let mut rules = self.paths.rules(path).to_vec();
        let lengths = self.lengths.iter();
        for beginning in lengths.filter_map(|length| path.get(..*length)) {
            if let Some(found) = self.paths.beginning.get(beginning) {
                rules.extend_from_slice(found);
            }
        }
        rules.sort_unstable();
        rules.dedup();
        rules
    }

    /// The classes of names, which come after the verbs.
    fn names<'w>(&mut self, list: &'w [String], few: bool) -> Result<Vec<Class<'w>>, Spent> {
        let all = self.classes(list, few, |held, one| held.names.rules(one).to_vec())?;
        let mut places: FxHashMap<Vec<&str>, usize> = FxHashMap::default();
        let mut names: Vec<Class<'w>> = Vec::new();
        for class in all {
            match places.get(&class.members) {
                Some(&place) => names[place].times += 1,
                None => {
                    places.insert(class.members.clone(), names.len());
                    names.push(class);
                }
            }
        }
        Ok(names)
    }

    /// A few elements are classes of their own; many are put together where they make no difference.
    fn classes<'w>(
        &mut self,
        list: &'w [String],
        few: bool,
        rules: impl Fn(&Self, &str) -> Vec<u32>,
    ) -> Result<Vec<Class<'w>>, Spent> {
        let mut classes: Vec<Class<'w>> = Vec::new();
        let mut known: FxHashMap<Vec<u32>, usize> = FxHashMap::default();
        let mut seen = FxHashSet::default();
        for one in list {
            if !few && !seen.insert(one.as_str()) {
                continue;
            }
            let rules = rules(self, one);
            self.spend(rules.len())?;
            match known.get(&rules) {
                Some(&index) if !few => classes[index].members.push(one),
                _ => {
                    if !few {
                        known.insert(rules.clone(), classes.len());
                    }
                    classes.push(Class {
                        members: vec![one],
                        times: 1,
                        rules,
                    });
                }
            }
        }
        Ok(classes)
    }

    /// Those of some rules that have all of a part, or are among `rules`.
    fn meet(
        &mut self,
        some: &[u32],
        part: impl Fn(&Self) -> &Part<'a>,
        rules: &[u32],
    ) -> Result<Vec<u32>, Spent> {
        self.spend(some.len())?;
        let part = part(self);
        let stays = |rule: &u32| part.all[*rule as usize] || rules.binary_search(rule).is_ok();
        Ok(some.iter().copied().filter(stays).collect())
    }
}

/// What was found to be missing.
#[derive(Default)]
struct Findings {
    /// The verbs that are missing, by group, resource and name.
    resources: FxHashMap<(String, String, Option<String>), Vec<String>>,
    paths: FxHashSet<(String, String)>,
    bytes: usize,
    more: usize,
}

impl Findings {
    /// Whether there is room to tell another one.
    fn has_room(&mut self, bytes: usize) -> bool {
        let lines = self.resources.len() + self.paths.len();
        let room = lines < LINES && self.bytes.saturating_add(bytes) <= BYTES;
        if room {
            self.bytes += bytes;
        }
        room
    }

    fn note(
        &mut self,
        group: &Class<'_>,
        resource: &Class<'_>,
        name: &Class<'_>,
        verbs: &[&Class<'_>],
    ) {
        if verbs.is_empty() {
            return;
        }
        let verbs = || {
            let verbs = verbs.iter().flat_map(|class| &class.members);
            verbs.flat_map(|verb| std::iter::repeat_n(verb, name.times))
        };
        let verb_bytes: usize = verbs().map(|verb| verb.len()).sum();
        let names: Vec<Option<&str>> = match name.members.as_slice() {
            [] => vec![None],
            names => names.iter().take(LINES).copied().map(Some).collect(),
        };
        let all = group.members.len().saturating_mul(resource.members.len());
        let all = all.saturating_mul(name.members.len().max(1));
        let mut told = 0;
        'lines: for group in &group.members {
            for resource in &resource.members {
                for name in &names {
                    let bytes = group.len() + resource.len() + name.map_or(0, str::len);
                    if !self.has_room(bytes + verb_bytes) {
                        break 'lines;
                    }
                    told += 1;
                    let key = (
                        (*group).to_owned(),
                        (*resource).to_owned(),
                        name.map(str::to_owned),
                    );
                    let line = self.resources.entry(key).or_default();
                    line.extend(verbs().map(|verb| (*verb).to_owned()));
                }
            }
        }
        self.more = self.more.saturating_add(all - told);
    }

    fn note_path(&mut self, path: &Class<'_>, verb: &Class<'_>) {
        let all = path.members.len().saturating_mul(verb.members.len());
        let mut told = 0;
        'lines: for path in &path.members {
            for verb in &verb.members {
                if !self.has_room(path.len() + verb.len()) {
                    break 'lines;
                }
                told += 1;
                self.paths.insert(((*path).to_owned(), (*verb).to_owned()));
            }
        }
        self.more = self.more.saturating_add(all - told);
    }

    fn told(self) -> Option<Missing> {
        if self.resources.is_empty() && self.paths.is_empty() && self.more == 0 {
            return None;
        }
        let resources = self.resources.into_iter().map(|(key, verbs)| {
            let (group, resource, name) = key;
            Rule {
                verbs,
                api_groups: vec![group],
                resources: vec![resource],
                resource_names: name.into_iter().collect(),
                non_resource_urls: Vec::new(),
            }
        });
        let paths = self.paths.into_iter().map(|(path, verb)| Rule {
            verbs: vec![verb],
            non_resource_urls: vec![path],
            ..Rule::default()
        });
        let mut lines: Vec<String> = resources
            .chain(paths)
            .map(|rule| rule.to_string())
            .collect();
        lines.sort_unstable();
        let more = self.more;
        Some(Missing::Lines { lines, more })
    }
}

/// The refusal, as clients know it.
pub fn describe(missing: &Missing, user: &str, groups: &[String]) -> String {
    let who = format!("user {user} (groups={})", quoted_list(groups));
    match missing {
        Missing::TooMany => format!(
            "{who} is attempting to grant more RBAC permissions than can be compared with those currently held"
        ),
        Missing::Lines { lines, more } => {
            let more = (*more > 0).then(|| format!("and {more} more"));
            let lines: Vec<&str> = lines.iter().chain(&more).map(String::as_str).collect();
            format!(
                "{who} is attempting to grant RBAC permissions not currently held:\n{}",
                lines.join("\n")
            )
        }
    }
}

#[cfg(test)]
mod tests;
