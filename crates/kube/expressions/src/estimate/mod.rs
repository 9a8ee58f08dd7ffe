//! The most that an expression can cost, before there are any values: from what a schema says about their sizes. The rules are
//! those of the original's estimator.

mod calls;
mod sizes;

use std::collections::HashMap;

use cel::IdedExpr;
use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, ListExpr, LiteralValue, MapExpr, SelectExpr,
    operators,
};
pub use sizes::{Bounds, Inside, Range, Step};

use crate::check::Checked;
use crate::types::Type;

const LIST: u64 = 10;
const MAP: u64 = 30;
const STRUCT: u64 = 40;
/// What macros call the sum of a loop.
const SUM: &str = "@result";

/// The most that this can cost. `bounds`: of every variable alike.
pub fn estimate(expression: &IdedExpr, checked: &Checked, bounds: &Bounds) -> u64 {
    let mut estimator = Estimator {
        checked,
        bounds,
        paths: HashMap::new(),
        locals: Vec::new(),
        sizes: HashMap::new(),
        entries: HashMap::new(),
    };
    estimator.cost(expression).most
}

struct Estimator<'a> {
    checked: &'a Checked,
    bounds: &'a Bounds,
    /// By the numbers of parts.
    paths: HashMap<u64, Vec<Step>>,
    locals: Vec<(String, Local)>,
    sizes: HashMap<u64, Range>,
    entries: HashMap<u64, Entry>,
}

/// A variable of a loop.
#[derive(Clone)]
struct Local {
    path: Vec<Step>,
    size: Option<Range>,
    entry: Option<Entry>,
}

/// The sizes of what is in a list or map.
#[derive(Debug, Clone, Copy)]
struct Entry {
    is_list: bool,
    key: Range,
    value: Range,
}

impl Entry {
    fn or(self, other: Self) -> Self {
        Self {
            is_list: self.is_list,
            key: self.key.or(other.key),
            value: self.value.or(other.value),
        }
    }
}

impl Estimator<'_> {
    fn cost(&mut self, part: &IdedExpr) -> Range {
        match &part.expr {
            Expr::Literal(_) | Expr::Unspecified => Range::ZERO,
            Expr::Ident(name) => {
                let path = match self.local(name) {
                    Some(local) => local.path.clone(),
                    None => vec![Step::Field(name.as_str().into())],
                };
                self.paths.insert(part.id, path);
                Range::ONE
            }
            Expr::Select(select) => self.select(part, select),
            Expr::Call(call) => self.call(part, call),
            Expr::List(list) => self.list(part, list),
            Expr::Map(map) => self.map(part, map),
            Expr::Struct(_) => Range::exactly(STRUCT),
            Expr::Comprehension(one) => self.comprehension(part, one),
        }
    }

    fn local(&self, name: &str) -> Option<&Local> {
        let mut found = self.locals.iter().rev();
        found
            .find(|(known, _)| known == name)
            .map(|(_, local)| local)
    }

    fn select(&mut self, part: &IdedExpr, select: &SelectExpr) -> Range {
        let cost = self.cost(&select.operand);
        if select.test {
            return cost;
        }
        let mut path = self.path(&select.operand);
        path.push(Step::Field(select.field.as_str().into()));
        self.paths.insert(part.id, path);
        match self.kind(&select.operand) {
            Type::Map(..) | Type::Object(_) | Type::Open(_) => cost.plus(Range::ONE),
            _ => cost,
        }
    }

    fn call(&mut self, part: &IdedExpr, call: &CallExpr) -> Range {
        if let ("dyn", [arg]) = (call.func_name.as_str(), call.args.as_slice()) {
            let cost = self.cost(arg);
            self.copy_sizes(part, arg);
            return cost.plus(Range::ONE);
        }
        let costs: Vec<Range> = call.args.iter().map(|arg| self.cost(arg)).collect();
        let (name, target) = calls::resolved(call);
        let of_target = target.map_or(Range::ZERO, |target| self.cost(target));
        let found = self.function(part, &name, target, &call.args, &costs);
        let mut size = found.size;
        if let (operators::INDEX, [of, _]) = (name.as_str(), call.args.as_slice()) {
            size = self.indexed(part, of);
        }
        let size = size.or_else(|| self.size(part));
        self.set_size(part, size);
        of_target.plus(found.cost)
    }

    /// An element of a list, or a value of a map.
    fn indexed(&mut self, part: &IdedExpr, of: &IdedExpr) -> Option<Range> {
        let step = match self.kind(of) {
            Type::List(_) => Step::Items,
            _ => Step::Values,
        };
        let mut path = self.path(of);
        path.push(step);
        self.paths.insert(part.id, path);
        self.entry(of).map(|entry| entry.value)
    }

    fn list(&mut self, part: &IdedExpr, list: &ListExpr) -> Range {
        let mut cost = Range::exactly(LIST);
        let mut value = match list.elements.is_empty() {
            true => Range::ZERO,
            false => Range::new(u64::MAX, 0),
        };
        for element in &list.elements {
            cost = cost.plus(self.cost(element));
            value = value.or(self.size_or_unknown(element));
        }
        let entry = Entry {
            is_list: true,
            key: Range::ONE,
            value,
        };
        self.entries.insert(part.id, entry);
        cost
    }

    fn map(&mut self, part: &IdedExpr, map: &MapExpr) -> Range {
        let mut cost = Range::exactly(MAP);
        let nothing = match map.entries.is_empty() {
            true => Range::ZERO,
            false => Range::new(u64::MAX, 0),
        };
        let (mut key, mut value) = (nothing, nothing);
        for entry in &map.entries {
            if let EntryExpr::MapEntry(entry) = &entry.expr {
                cost = cost.plus(self.cost(&entry.key));
                cost = cost.plus(self.cost(&entry.value));
                key = key.or(self.size_or_unknown(&entry.key));
                value = value.or(self.size_or_unknown(&entry.value));
            }
        }
        let entry = Entry {
            is_list: false,
            key,
            value,
        };
        self.entries.insert(part.id, entry);
        cost
    }

    fn comprehension(&mut self, part: &IdedExpr, one: &ComprehensionExpr) -> Range {
        let mut cost = self.cost(&one.iter_range).plus(self.cost(&one.accu_init));
        let sum = Local {
            path: self.path(&one.accu_init),
            size: self.size(&one.accu_init),
            entry: self.entry(&one.accu_init),
        };
        let known = self.locals.len();
        self.locals.push((one.accu_var.clone(), sum));
        if binds(one) {
            cost = cost.plus(self.cost(&one.result));
            self.locals.truncate(known);
            self.copy_sizes(part, &one.result);
            return cost;
        }
        match &one.iter_var2 {
            Some(second) => {
                let (key, value) = (self.key_of(one), self.value_of(one));
                self.locals.push((one.iter_var.clone(), key));
                self.locals.push((second.clone(), value));
            }
            None => {
                let item = match self.is_list(&one.iter_range) {
                    true => self.value_of(one),
                    false => self.key_of(one),
                };
                self.locals.push((one.iter_var.clone(), item));
            }
        }
        let condition = self.cost(&one.loop_cond);
        let step = self.cost(&one.loop_step);
        self.locals.truncate(known + 1);
        cost = cost.plus(self.cost(&one.result));
        self.locals.truncate(known);
        let rounds = self.size_or_unknown(&one.iter_range);
        cost = cost.plus(rounds.times(step.plus(condition)));
        match &one.accu_init.expr {
            Expr::Literal(_) => {
                let size = self.size(&one.accu_init);
                self.set_size(part, size);
            }
            Expr::List(_) | Expr::Map(_) => {
                self.set_size(part, Some(rounds));
                if let Some(entry) = self.entry(&one.loop_step) {
                    self.entries.insert(part.id, entry);
                }
            }
            _ => {}
        }
        cost
    }

    fn is_list(&self, range: &IdedExpr) -> bool {
        match self.entry(range) {
            Some(entry) => entry.is_list,
            None => matches!(self.kind(range), Type::List(_)),
        }
    }

    fn key_of(&mut self, one: &ComprehensionExpr) -> Local {
        let step = match self.is_list(&one.iter_range) {
            true => Step::Indices,
            false => Step::Keys,
        };
        self.of_range(one, step, |entry| entry.key)
    }

    fn value_of(&mut self, one: &ComprehensionExpr) -> Local {
        let step = match self.is_list(&one.iter_range) {
            true => Step::Items,
            false => Step::Values,
        };
        self.of_range(one, step, |entry| entry.value)
    }

    fn of_range(&mut self, one: &ComprehensionExpr, step: Step, of: fn(Entry) -> Range) -> Local {
        let mut path = self.path(&one.iter_range);
        path.push(step);
        Local {
            path,
            size: self.entry(&one.iter_range).map(of),
            entry: None,
        }
    }

    fn kind(&self, part: &IdedExpr) -> Type {
        self.checked.of(part)
    }

    fn path(&self, part: &IdedExpr) -> Vec<Step> {
        if let Expr::Ident(name) = &part.expr
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&part.id).cloned().unwrap_or_default()
    }

    /// What the schema says of the place that a path leads to.
    fn size_at(&self, path: &[Step]) -> Option<Range> {
        let (first, rest) = path.split_first()?;
        if *first == Step::Field(SUM.into()) {
            return None;
        }
        Some(Range::new(0, self.bounds.most_at(rest)?))
    }

    fn set_size(&mut self, part: &IdedExpr, size: Option<Range>) {
        if let Some(size) = size {
            self.sizes.insert(part.id, size);
        }
    }

    fn copy_sizes(&mut self, to: &IdedExpr, from: &IdedExpr) {
        let size = self.size(from);
        self.set_size(to, size);
        if let Some(entry) = self.entry(from) {
            self.entries.insert(to.id, entry);
        }
    }

    fn size_or_unknown(&self, part: &IdedExpr) -> Range {
        self.size(part).unwrap_or(Range::UNKNOWN)
    }

    fn size(&self, part: &IdedExpr) -> Option<Range> {
        if let Some(size) = self.sizes.get(&part.id) {
            return Some(*size);
        }
        if let Some(size) = written(&part.expr) {
            return Some(Range::exactly(size));
        }
        if let Some(size) = self.size_at(&self.path(part)) {
            return Some(size);
        }
        if is_scalar(&self.kind(part)) {
            return Some(Range::ONE);
        }
        match &part.expr {
            Expr::Ident(name) => self.local(name)?.size,
            _ => None,
        }
    }

    fn entry(&self, part: &IdedExpr) -> Option<Entry> {
        if let Some(entry) = self.entries.get(&part.id) {
            return Some(*entry);
        }
        match &part.expr {
            Expr::Ident(name) => self.local(name)?.entry,
            _ => None,
        }
    }
}

/// It gives a name to a value.
fn binds(one: &ComprehensionExpr) -> bool {
    matches!(&one.iter_range.expr, Expr::List(list) if list.elements.is_empty())
        && matches!(&one.loop_cond.expr, Expr::Literal(LiteralValue::Boolean(flag)) if !*flag.inner())
}

/// The size of what is written down.
fn written(expression: &Expr) -> Option<u64> {
    let size = match expression {
        Expr::Literal(LiteralValue::String(text)) => text.inner().chars().count(),
        Expr::Literal(LiteralValue::Bytes(bytes)) => bytes.inner().len(),
        Expr::Literal(_) => 1,
        Expr::List(list) => list.elements.len(),
        Expr::Map(map) => map.entries.len(),
        _ => return None,
    };
    Some(size as u64)
}

fn is_scalar(kind: &Type) -> bool {
    match kind {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => {
            true
        }
        Type::Optional(of) => is_scalar(of),
        _ => false,
    }
}
