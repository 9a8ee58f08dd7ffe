//! From the parser's tree to one that is computed: names are resolved, functions are found, constants are made once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, ListExpr, LiteralValue, MapExpr, SelectExpr,
    operators,
};
use cel::objects::{Key, Map};
use cel::{IdedExpr, Value};

use crate::check::qualified;
use crate::code::{Code, Fold, Function, Item, Operator, Run, Select};
use crate::types::Type;
use crate::values::TypeName;
use crate::{library, limits, signatures};

const OPERATORS: [(&str, Operator); 12] = [
    (operators::ADD, Operator::Add),
    (operators::SUBSTRACT, Operator::Subtract),
    (operators::MULTIPLY, Operator::Multiply),
    (operators::DIVIDE, Operator::Divide),
    (operators::MODULO, Operator::Modulo),
    (operators::EQUALS, Operator::Equals),
    (operators::NOT_EQUALS, Operator::NotEquals),
    (operators::LESS, Operator::Less),
    (operators::LESS_EQUALS, Operator::LessEquals),
    (operators::GREATER, Operator::Greater),
    (operators::GREATER_EQUALS, Operator::GreaterEquals),
    (operators::IN, Operator::In),
];

/// The code of an expression that was found to make sense, and the variables that it speaks of.
pub fn lower(
    expression: &IdedExpr,
    variables: &BTreeMap<&str, Type>,
) -> Result<(Code, BTreeSet<String>), String> {
    let mut lowerer = Lowerer {
        variables,
        scopes: Vec::new(),
        places: 0,
        used: BTreeSet::new(),
        depth: 0,
    };
    let code = lowerer.code(expression)?;
    Ok((code, lowerer.used))
}

struct Lowerer<'v> {
    variables: &'v BTreeMap<&'v str, Type>,
    /// Names of loops' variables, and where their values are.
    scopes: Vec<(String, usize)>,
    places: usize,
    used: BTreeSet<String>,
    depth: usize,
}

type Lowered = Result<Code, String>;

impl Lowerer<'_> {
    fn code(&mut self, part: &IdedExpr) -> Lowered {
        if self.depth == limits::TREE {
            return Err(limits::too_deep());
        }
        self.depth += 1;
        let code = match &part.expr {
            Expr::Literal(literal) => Ok(Code::Literal(constant(literal))),
            Expr::Ident(name) => Ok(self.name(name)),
            Expr::Select(select) => self.select(part, select),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(map),
            Expr::Comprehension(one) => self.fold(one),
            // The checker complains about both.
            Expr::Struct(_) | Expr::Unspecified => Ok(Code::Literal(Value::Null)),
        };
        self.depth -= 1;
        code
    }

    fn codes(&mut self, parts: &[IdedExpr]) -> Result<Vec<Code>, String> {
        parts.iter().map(|part| self.code(part)).collect()
    }

    fn place(&self, name: &str) -> Option<usize> {
        let mut found = self.scopes.iter().rev();
        found.find(|(known, _)| known == name).map(|(_, at)| *at)
    }

    fn name(&mut self, name: &str) -> Code {
        if let Some(place) = self.place(name) {
            return Code::Local(place);
        }
        if !self.variables.contains_key(name)
            && let Some(kind) = signatures::named(name)
        {
            return Code::Literal(TypeName::of_type(&kind).value());
        }
        self.used.insert(name.to_owned());
        Code::Global(name.into())
    }

    fn select(&mut self, part: &IdedExpr, select: &SelectExpr) -> Lowered {
        if !select.test
            && let Some(name) = qualified(&part.expr)
            && (self.variables.contains_key(name.as_str()) || signatures::named(&name).is_some())
        {
            return Ok(self.name(&name));
        }
        Ok(Code::Select(Box::new(Select {
            of: self.code(&select.operand)?,
            field: Arc::new(select.field.clone()),
            test: select.test,
            computed: qualified(&select.operand.expr).is_none() && !is_path(&select.operand.expr),
        })))
    }

    fn call(&mut self, call: &CallExpr) -> Lowered {
        let name = call.func_name.as_str();
        if let Some(target) = &call.target {
            return self.method(target, call);
        }
        match (name, call.args.as_slice()) {
            (operators::LOGICAL_AND, [one, other]) => Ok(Code::And(self.both(one, other)?)),
            (operators::LOGICAL_OR, [one, other]) => Ok(Code::Or(self.both(one, other)?)),
            (operators::INDEX, [of, index]) => Ok(Code::Index {
                parts: self.both(of, index)?,
                optional: false,
            }),
            (operators::OPT_INDEX | operators::OPT_SELECT, [of, index]) => Ok(Code::Index {
                parts: self.both(of, index)?,
                optional: true,
            }),
            (operators::CONDITIONAL, [condition, one, other]) => Ok(Code::If(Box::new([
                self.code(condition)?,
                self.code(one)?,
                self.code(other)?,
            ]))),
            (operators::LOGICAL_NOT, [of]) => Ok(Code::Not(Box::new(self.code(of)?))),
            (operators::NEGATE, [of]) => Ok(Code::Negate(Box::new(self.code(of)?))),
            (operators::NOT_STRICTLY_FALSE, [of]) => Ok(Code::NotFalse(Box::new(self.code(of)?))),
            (name, [one, other])
                if let Some((_, operator)) = OPERATORS.iter().find(|(known, _)| *known == name) =>
            {
                let parts = self.both(one, other)?;
                let operator = match (operator, &parts[1]) {
                    (Operator::In, Code::Literal(Value::List(items))) if is_plain(items) => {
                        Operator::InWritten
                    }
                    _ => *operator,
                };
                Ok(Code::Operator(operator, parts))
            }
            (name, args) => {
                let args = self.codes(args)?;
                Ok(function(name, args))
            }
        }
    }

    fn both(&mut self, one: &IdedExpr, other: &IdedExpr) -> Result<Box<[Code; 2]>, String> {
        Ok(Box::new([self.code(one)?, self.code(other)?]))
    }

    fn method(&mut self, target: &IdedExpr, call: &CallExpr) -> Lowered {
        if let Some(space) = qualified(&target.expr) {
            let name = format!("{space}.{}", call.func_name);
            if signatures::find(&name).is_some() {
                let args = self.codes(&call.args)?;
                return Ok(function(&name, args));
            }
        }
        let mut args = vec![self.code(target)?];
        args.extend(self.codes(&call.args)?);
        Ok(function(&call.func_name, args))
    }

    fn items(&mut self, list: &ListExpr) -> Result<Vec<Item>, String> {
        let optional: BTreeSet<usize> = list.optional_indices.iter().copied().collect();
        let items = list.elements.iter().enumerate().map(|(index, element)| {
            Ok(Item {
                code: self.code(element)?,
                optional: optional.contains(&index),
            })
        });
        items.collect()
    }

    fn list(&mut self, list: &ListExpr) -> Lowered {
        let items = self.items(list)?;
        let constants = items.iter().map(|item| match &item.code {
            Code::Literal(value) if !item.optional => Some(value.clone()),
            _ => None,
        });
        Ok(match constants.collect::<Option<Vec<Value>>>() {
            Some(values) => Code::Literal(Value::List(Arc::new(values))),
            None => Code::List(items),
        })
    }

    fn map(&mut self, map: &MapExpr) -> Lowered {
        let mut entries = Vec::with_capacity(map.entries.len());
        for entry in &map.entries {
            if let EntryExpr::MapEntry(entry) = &entry.expr {
                let item = Item {
                    code: self.code(&entry.value)?,
                    optional: entry.optional,
                };
                entries.push((self.code(&entry.key)?, item));
            }
        }
        let constants = entries.iter().map(|(key, item)| match (key, &item.code) {
            (Code::Literal(key), Code::Literal(value)) if !item.optional => {
                let key: Option<Key> = key.clone().try_into().ok();
                Some((key?, value.clone()))
            }
            _ => None,
        });
        Ok(match constants.collect::<Option<HashMap<Key, Value>>>() {
            Some(map) => Code::Literal(Value::Map(Map { map: Arc::new(map) })),
            None => Code::Map(entries),
        })
    }

    fn fold(&mut self, one: &ComprehensionExpr) -> Lowered {
        let range = self.code(&one.iter_range)?;
        let start = self.code(&one.accu_init)?;
        let place = self.places;
        let sum = place + 2;
        let known = self.scopes.len();
        self.places += 3;
        self.scopes.push((one.accu_var.clone(), sum));
        let with_sum = self.scopes.len();
        if let Some(second) = &one.iter_var2 {
            self.scopes.push((second.clone(), place + 1));
        }
        self.scopes.push((one.iter_var.clone(), place));
        let condition = self.code(&one.loop_cond)?;
        let step = self.step(&one.loop_step, &one.accu_var, sum)?;
        self.scopes.truncate(with_sum);
        let result = self.code(&one.result)?;
        self.scopes.truncate(known);
        self.places -= 3;
        let decides = match (&step, &one.loop_step.expr) {
            (Code::And(_), Expr::Call(call)) if is_sum(&call.args[0], &one.accu_var) => Some(false),
            (Code::Or(_), Expr::Call(call)) if is_sum(&call.args[0], &one.accu_var) => Some(true),
            _ => None,
        };
        let binds = matches!(&one.iter_range.expr, Expr::List(list) if list.elements.is_empty())
            && matches!(&condition, Code::Literal(Value::Bool(false)));
        Ok(Code::Fold(Box::new(Fold {
            range,
            start,
            condition,
            step,
            result,
            place,
            two: one.iter_var2.is_some(),
            decides,
            binds,
        })))
    }

    /// What grows a list or a map does so in place: nothing else can see it meanwhile.
    fn step(&mut self, part: &IdedExpr, name: &str, sum: usize) -> Lowered {
        let Expr::Call(call) = &part.expr else {
            return self.code(part);
        };
        match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::CONDITIONAL, [condition, one, other]) => Ok(Code::If(Box::new([
                self.code(condition)?,
                self.step(one, name, sum)?,
                self.step(other, name, sum)?,
            ]))),
            (operators::ADD, [one, other])
                if is_sum(one, name)
                    && let Expr::List(list) = &other.expr =>
            {
                Ok(Code::Append(sum, self.items(list)?))
            }
            ("cel.@mapInsert", [one, rest @ ..]) if is_sum(one, name) => {
                Ok(Code::Insert(sum, self.codes(rest)?))
            }
            _ => self.code(part),
        }
    }
}

fn is_plain(items: &[Value]) -> bool {
    let is_within = |item: &Value| matches!(item, Value::List(_) | Value::Map(_));
    !items.iter().any(is_within)
}

fn is_sum(part: &IdedExpr, name: &str) -> bool {
    matches!(&part.expr, Expr::Ident(found) if found == name)
}

/// Whether it is a variable, or selected from one.
fn is_path(expression: &Expr) -> bool {
    match expression {
        Expr::Ident(_) => true,
        Expr::Select(select) => !select.test && is_path(&select.operand.expr),
        Expr::Call(call) => match call.func_name.as_str() {
            operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT => {
                call.args.first().is_some_and(|of| is_path(&of.expr))
            }
            _ => false,
        },
        _ => false,
    }
}

fn function(name: &str, args: Vec<Code>) -> Code {
    // The checker knows every function that gets here.
    let name = signatures::name(name).unwrap_or("unknown");
    let has_pattern = matches!(name, "matches" | "find" | "findAll")
        && matches!(args.get(1), Some(Code::Literal(Value::String(_))));
    let run = if has_pattern {
        Run::Pattern(OnceLock::new())
    } else if let Some(call) = library::find(name) {
        Run::Ours(call)
    } else {
        Run::Theirs(Box::new(library::foreign(name, args.len())))
    };
    Code::Call(Box::new(Function { name, run, args }))
}

fn constant(literal: &LiteralValue) -> Value {
    match literal {
        LiteralValue::Boolean(flag) => Value::Bool(*flag.inner()),
        LiteralValue::Bytes(bytes) => Value::Bytes(Arc::new(bytes.inner().to_vec())),
        LiteralValue::Double(number) => Value::Float(*number.inner()),
        LiteralValue::Int(number) => Value::Int(*number.inner()),
        LiteralValue::Null => Value::Null,
        LiteralValue::String(text) => Value::String(Arc::new(text.inner().to_owned())),
        LiteralValue::UInt(number) => Value::UInt(*number.inner()),
    }
}
