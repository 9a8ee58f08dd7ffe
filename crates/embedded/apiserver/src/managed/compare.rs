//! What an object gained, lost and changed.

use std::collections::BTreeMap;

use serde_json::Value;

use super::fieldset::FieldSet;
use super::path::{Step, values_equal};
use super::typed::{Atom, List, Type};

/// No field is in more than one of the three.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Comparison {
    pub added: FieldSet,
    pub modified: FieldSet,
    pub removed: FieldSet,
    /// There is an element that nothing tells from others, where something should.
    pub nameless: bool,
}

impl Comparison {
    pub fn of(old: &Value, new: &Value, of: Type<'_>) -> Self {
        let mut walk = Walk {
            path: Vec::new(),
            found: Self::default(),
        };
        walk.compare(Some(old), Some(new), of);
        walk.found
    }

    pub fn filter(self, keep: impl Fn(FieldSet) -> FieldSet) -> Self {
        Self {
            added: keep(self.added),
            modified: keep(self.modified),
            removed: keep(self.removed),
            nameless: self.nameless,
        }
    }
}

struct Walk {
    path: Vec<Step>,
    found: Comparison,
}

impl Walk {
    fn compare(&mut self, old: Option<&Value>, new: Option<&Value>, of: Type<'_>) {
        let is_leaf = match (old, new) {
            // A value of one kind in place of one of another: each has its say.
            (Some(was), Some(is)) if of.is_open() && kind(was) != kind(is) => {
                self.visit(old, new, of.atom(old));
                self.visit(old, new, of.atom(new))
            }
            _ => self.visit(old, new, of.atom(new.or(old))),
        };
        if is_leaf {
            return;
        }
        match (old, new) {
            (None, _) => self.found.added.insert(&self.path),
            (_, None) => self.found.removed.insert(&self.path),
            _ => {}
        }
    }

    /// Whether this is where ownership ends.
    fn visit(&mut self, old: Option<&Value>, new: Option<&Value>, atom: Atom<'_>) -> bool {
        match atom {
            Atom::Scalar(_) => self.leaf(old, new),
            Atom::List(list) => {
                let (was, is) = (elements(old), elements(new));
                // What is empty on both sides still differs from what is absent.
                if list.is_atomic() || (was.is_empty() && is.is_empty()) {
                    return self.leaf(old, new);
                }
                self.elements(was, is, list);
                false
            }
            Atom::Map(fields) => {
                let was = old.and_then(Value::as_object).filter(|map| !map.is_empty());
                let is = new.and_then(Value::as_object).filter(|map| !map.is_empty());
                if fields.atomic || (was.is_none() && is.is_none()) {
                    return self.leaf(old, new);
                }
                for (name, was) in was.into_iter().flatten() {
                    let is = is.and_then(|is| is.get(name));
                    self.step(Step::field(name), Some(was), is, fields.get(name));
                }
                for (name, is) in is.into_iter().flatten() {
                    if !was.is_some_and(|was| was.contains_key(name)) {
                        self.step(Step::field(name), None, Some(is), fields.get(name));
                    }
                }
                false
            }
        }
    }

    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) -> bool {
        match (old, new) {
            (None, _) => self.found.added.insert(&self.path),
            (_, None) => self.found.removed.insert(&self.path),
            (Some(old), Some(new)) if !values_equal(old, new) => {
                self.found.modified.insert(&self.path);
            }
            _ => {}
        }
        true
    }

    fn step(&mut self, step: Step, old: Option<&Value>, new: Option<&Value>, of: Option<Type<'_>>) {
        let Some(of) = of else { return };
        self.path.push(step);
        self.compare(old, new, of);
        self.path.pop();
    }

    /// Elements that are there more than once are compared as one.
    fn elements(&mut self, old: &[Value], new: &[Value], list: List<'_>) {
        let index = |values: &[Value]| -> Vec<Option<Step>> {
            values.iter().map(|one| list.step(one).ok()).collect()
        };
        let (old_steps, new_steps) = (index(old), index(new));
        self.found.nameless |= old_steps.iter().chain(&new_steps).any(Option::is_none);
        let mut all: BTreeMap<&Step, [Vec<&Value>; 2]> = BTreeMap::new();
        for (side, (values, steps)) in [(old, &old_steps), (new, &new_steps)].iter().enumerate() {
            for (value, step) in values.iter().zip(steps.iter()) {
                if let Some(step) = step {
                    all.entry(step).or_default()[side].push(value);
                }
            }
        }
        for (step, [was, is]) in all {
            let own = Some(list.element);
            match (was.as_slice(), is.as_slice()) {
                ([] | [_], [] | [_]) => {
                    let (was, is) = (was.first().copied(), is.first().copied());
                    self.step(step.clone(), was, is, own);
                }
                ([_, _, ..], [_, _, ..]) => {
                    let same = was.len() == is.len()
                        && was.iter().zip(&is).all(|(was, is)| values_equal(was, is));
                    if !same {
                        self.path.push(step.clone());
                        self.found.modified.insert(&self.path);
                        self.path.pop();
                    }
                }
                ([_, _, ..], _) => {
                    if let Some(is) = is.first().copied() {
                        self.step(step.clone(), None, Some(is), own);
                    }
                    self.path.push(step.clone());
                    self.found.removed.insert(&self.path);
                    self.path.pop();
                }
                (_, _) => {
                    if let Some(was) = was.first().copied() {
                        self.step(step.clone(), Some(was), None, own);
                    }
                    self.path.push(step.clone());
                    self.found.added.insert(&self.path);
                    self.path.pop();
                }
            }
        }
    }
}

fn elements(value: Option<&Value>) -> &[Value] {
    value
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

fn kind(value: &Value) -> u8 {
    match value {
        Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        Value::Array(_) => 1,
        // Null takes the form of whatever it is compared with.
        Value::Object(_) | Value::Null => 2,
    }
}
