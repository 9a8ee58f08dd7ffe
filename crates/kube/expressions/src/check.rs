//! Whether an expression makes sense before anything is computed, and what type it has.

use std::collections::BTreeMap;

use cel::IdedExpr;
use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, ListExpr, LiteralValue, MapExpr, SelectExpr,
    SourceInfo, operators,
};

use crate::literals;
use crate::signatures::{self, Overload};
use crate::solve::Found;
use crate::types::Type;

/// What is wrong, and with which part of the expression.
#[derive(Debug, PartialEq, Eq)]
pub struct Complaint {
    pub at: u64,
    pub words: String,
}

/// The types of an expression's parts, by their numbers.
#[derive(Debug)]
pub struct Checked {
    pub types: BTreeMap<u64, Type>,
    pub complaints: Vec<Complaint>,
}

impl Checked {
    pub fn of(&self, part: &IdedExpr) -> Type {
        self.types.get(&part.id).cloned().unwrap_or(Type::Dyn)
    }
}

pub fn check(expression: &IdedExpr, variables: &BTreeMap<&str, Type>) -> Checked {
    let scope = variables
        .iter()
        .map(|(name, kind)| ((*name).to_owned(), kind.clone()))
        .collect();
    let mut checker = Checker {
        scopes: vec![scope],
        ..Checker::default()
    };
    checker.visit(expression);
    let found = &checker.found;
    let closed = |kind: &Type| found.known(kind).map_open(&mut |_| Type::Dyn);
    let types: BTreeMap<u64, Type> = checker
        .types
        .iter()
        .map(|(id, kind)| (*id, closed(kind)))
        .collect();
    let mut complaints = checker.complaints;
    if complaints.is_empty() {
        literals::check(expression, false, &types, &mut complaints);
    }
    Checked { types, complaints }
}

#[derive(Default)]
struct Checker {
    scopes: Vec<BTreeMap<String, Type>>,
    found: Found,
    types: BTreeMap<u64, Type>,
    complaints: Vec<Complaint>,
}

impl Checker {
    fn complain(&mut self, at: u64, words: String) -> Type {
        self.complaints.push(Complaint { at, words });
        Type::Error
    }

    fn undeclared(&mut self, at: u64, name: &str) -> Type {
        self.complain(
            at,
            format!("undeclared reference to '{name}' (in container '')"),
        )
    }

    fn variable(&self, name: &str) -> Option<Type> {
        self.scopes
            .iter()
            .rev()
            .find_map(|scope| scope.get(name))
            .cloned()
    }

    fn name(&self, name: &str) -> Option<Type> {
        let named = || Some(Type::Type(Box::new(signatures::named(name)?)));
        self.variable(name).or_else(named)
    }

    fn visit(&mut self, part: &IdedExpr) -> Type {
        let kind = match &part.expr {
            Expr::Unspecified => Type::Error,
            Expr::Literal(literal) => of_literal(literal),
            Expr::Ident(name) => match self.name(name) {
                Some(kind) => kind,
                None => self.undeclared(part.id, name),
            },
            Expr::Select(select) => self.select(part.id, select),
            Expr::Call(call) => self.call(part.id, call),
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(map),
            Expr::Struct(made) => self.undeclared(part.id, &made.type_name),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
        };
        self.types.insert(part.id, kind.clone());
        kind
    }

    fn select(&mut self, at: u64, select: &SelectExpr) -> Type {
        if !select.test
            && let Some(qualified) = qualified(&select.operand.expr)
            && let Some(kind) = self.name(&format!("{qualified}.{}", select.field))
        {
            return kind;
        }
        let operand = self.visit(&select.operand);
        let kind = self.field(at, &operand, &select.field);
        if select.test { Type::Bool } else { kind }
    }

    /// What a field of a value is.
    fn field(&mut self, at: u64, of: &Type, field: &str) -> Type {
        match self.found.known(of) {
            Type::Map(_, value) => *value,
            Type::Object(object) => match object.fields.get(field) {
                Some(kind) => kind.clone(),
                None => self.complain(at, format!("undefined field '{field}'")),
            },
            Type::Optional(inner) => {
                let found = self.field(at, &inner, field);
                Type::optional(found)
            }
            open @ Type::Open(_) => {
                self.found.fits(&open, &Type::Dyn);
                Type::Dyn
            }
            Type::Dyn => Type::Dyn,
            Type::Error => Type::Error,
            other => self.complain(
                at,
                format!("type '{other}' does not support field selection"),
            ),
        }
    }

    fn call(&mut self, at: u64, call: &CallExpr) -> Type {
        if call.func_name == operators::OPT_SELECT
            && let [of, field] = call.args.as_slice()
        {
            return self.optional_field(at, of, field);
        }
        // Of these each side is looked at by itself.
        if [operators::LOGICAL_AND, operators::LOGICAL_OR].contains(&call.func_name.as_str()) {
            for arg in &call.args {
                let kind = self.visit(arg);
                self.expect(arg.id, &kind, &Type::Bool);
            }
            return Type::Bool;
        }
        let args = |checker: &mut Self| -> Vec<Type> {
            call.args.iter().map(|arg| checker.visit(arg)).collect()
        };
        let Some(target) = &call.target else {
            let args = args(self);
            return match signatures::find(&call.func_name) {
                Some(overloads) => self.resolve(at, &call.func_name, overloads, args, false),
                None => self.undeclared(at, &call.func_name),
            };
        };
        if let Some(qualified) = qualified(&target.expr) {
            let name = format!("{qualified}.{}", call.func_name);
            if let Some(overloads) = signatures::find(&name) {
                let args = args(self);
                return self.resolve(at, &name, overloads, args, false);
            }
        }
        let mut all = vec![self.visit(target)];
        all.extend(args(self));
        match signatures::find(&call.func_name) {
            Some(overloads) => self.resolve(at, &call.func_name, overloads, all, true),
            None => self.undeclared(at, &call.func_name),
        }
    }

    /// `a.?b`
    fn optional_field(&mut self, at: u64, of: &IdedExpr, field: &IdedExpr) -> Type {
        let operand = self.visit(of);
        self.visit(field);
        let Expr::Literal(LiteralValue::String(name)) = &field.expr else {
            return Type::Dyn;
        };
        match self.field(at, &operand, name.inner()) {
            already @ Type::Optional(_) => already,
            kind => Type::optional(kind),
        }
    }

    fn resolve(
        &mut self,
        at: u64,
        name: &str,
        overloads: &[Overload],
        args: Vec<Type>,
        is_method: bool,
    ) -> Type {
        let mut result: Option<Type> = None;
        for overload in overloads.iter().filter(|one| one.is_method == is_method) {
            let (takes, gives) = self.found.instance(&overload.takes, &overload.gives);
            if !self.found.all_fit(&args, &takes) {
                continue;
            }
            let gives = self.found.known(&gives);
            result = Some(match result {
                Some(earlier) if earlier != gives => Type::Dyn,
                _ => gives,
            });
        }
        if let Some(result) = result {
            return result;
        }
        let shown: Vec<String> = args
            .iter()
            .map(|kind| self.found.known(kind).to_string())
            .collect();
        let shown = if is_method {
            format!("{}.({})", shown[0], shown[1..].join(", "))
        } else {
            format!("({})", shown.join(", "))
        };
        self.complain(
            at,
            format!("found no matching overload for '{name}' applied to '{shown}'"),
        )
    }

    fn list(&mut self, list: &ListExpr) -> Type {
        let mut items: Option<Type> = None;
        for (index, element) in list.elements.iter().enumerate() {
            let mut kind = self.visit(element);
            if list.optional_indices.binary_search(&index).is_ok()
                && let Type::Optional(inner) = kind
            {
                kind = *inner;
            }
            items = Some(match items {
                Some(earlier) => self.found.join(&earlier, &kind),
                None => kind,
            });
        }
        Type::list(items.unwrap_or_else(|| self.found.fresh()))
    }

    fn map(&mut self, map: &MapExpr) -> Type {
        let mut both: Option<(Type, Type)> = None;
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                continue;
            };
            let key = self.visit(&entry.key);
            let mut value = self.visit(&entry.value);
            if entry.optional
                && let Type::Optional(inner) = value
            {
                value = *inner;
            }
            both = Some(match both {
                Some((keys, values)) => (
                    self.found.join(&keys, &key),
                    self.found.join(&values, &value),
                ),
                None => (key, value),
            });
        }
        let (key, value) = both.unwrap_or_else(|| (self.found.fresh(), self.found.fresh()));
        Type::map(key, value)
    }

    fn comprehension(&mut self, comprehension: &ComprehensionExpr) -> Type {
        let range = self.visit(&comprehension.iter_range);
        let sum = self.visit(&comprehension.accu_init);
        let (one, two) = match self.found.known(&range) {
            Type::List(item) => (Type::Int, *item),
            Type::Map(key, value) => (*key, *value),
            Type::Error => (Type::Error, Type::Error),
            Type::Dyn | Type::Open(_) => (Type::Dyn, Type::Dyn),
            other => {
                let words = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                let wrong = self.complain(comprehension.iter_range.id, words);
                (wrong.clone(), wrong)
            }
        };
        let over_list = matches!(self.found.known(&range), Type::List(_));
        let mut names = BTreeMap::new();
        match &comprehension.iter_var2 {
            Some(second) => {
                names.insert(comprehension.iter_var.clone(), one);
                names.insert(second.clone(), two);
            }
            None => {
                let item = if over_list { two } else { one };
                names.insert(comprehension.iter_var.clone(), item);
            }
        }
        let accu = BTreeMap::from([(comprehension.accu_var.clone(), sum.clone())]);
        self.scopes.push(accu);
        self.scopes.push(names);
        let condition = self.visit(&comprehension.loop_cond);
        self.expect(comprehension.loop_cond.id, &condition, &Type::Bool);
        let step = self.visit(&comprehension.loop_step);
        self.expect(comprehension.loop_step.id, &step, &sum);
        self.scopes.pop();
        let result = self.visit(&comprehension.result);
        self.scopes.pop();
        self.found.known(&result)
    }

    fn expect(&mut self, at: u64, found: &Type, wanted: &Type) {
        if !self.found.fits(found, wanted) {
            let (found, wanted) = (self.found.known(found), self.found.known(wanted));
            self.complain(at, format!("expected type '{wanted}' but found '{found}'"));
        }
    }
}

fn of_literal(literal: &LiteralValue) -> Type {
    match literal {
        LiteralValue::Boolean(_) => Type::Bool,
        LiteralValue::Bytes(_) => Type::Bytes,
        LiteralValue::Double(_) => Type::Double,
        LiteralValue::Int(_) => Type::Int,
        LiteralValue::Null => Type::Null,
        LiteralValue::String(_) => Type::String,
        LiteralValue::UInt(_) => Type::Uint,
    }
}

/// `a.b.c` as a name.
pub fn qualified(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Ident(name) => Some(name.clone()),
        Expr::Select(select) if !select.test => Some(format!(
            "{}.{}",
            qualified(&select.operand.expr)?,
            select.field
        )),
        _ => None,
    }
}

/// Complaints in the words and the form that people know from the original compiler.
pub fn shown(complaints: &mut [Complaint], source: &SourceInfo) -> String {
    let text = &source.source;
    let place = |at: u64| source.offset_for(at).map_or(0, |(start, _)| start as usize);
    /// Each quotes the line that it is about.
    const MOST: usize = 100;
    let more = complaints.len().saturating_sub(MOST);
    let shown = complaints.len() - more;
    let complaints = &mut complaints[..shown];
    complaints.sort_by_key(|complaint| place(complaint.at));
    let lines = complaints.iter().map(|complaint| {
        let at = place(complaint.at).min(text.len());
        let before = &text[..at];
        let line = before.matches('\n').count() + 1;
        let column = before[before.rfind('\n').map_or(0, |end| end + 1)..]
            .chars()
            .count();
        let quoted = text.lines().nth(line - 1).unwrap_or_default();
        format!(
            "ERROR: <input>:{line}:{}: {}\n | {quoted}\n | {}^",
            column + 1,
            complaint.words,
            ".".repeat(column)
        )
    });
    let mut lines: Vec<String> = lines.collect();
    if more > 0 {
        lines.push(format!("{more} more errors were truncated"));
    }
    lines.join("\n")
}
