//! Lists, maps and texts that are written down in an expression.

use std::collections::BTreeMap;

use cel::IdedExpr;
use cel::common::ast::{EntryExpr, Expr, LiteralValue};
use plimsoll_golang::GoDuration;

use crate::check::Complaint;
use crate::types::Type;

/// What literals may not be, though their types are right.
/// `is_mixed`: of what `format` puts into a text, each may be something else.
pub fn check(
    part: &IdedExpr,
    is_mixed: bool,
    types: &BTreeMap<u64, Type>,
    complaints: &mut Vec<Complaint>,
) {
    let kind = |part: &IdedExpr| types.get(&part.id).cloned().unwrap_or(Type::Dyn);
    let mut alike = |items: Vec<&IdedExpr>| {
        let mut first: Option<Type> = None;
        for item in items {
            let found = kind(item);
            match &first {
                Some(wanted) if !wanted.is_dyn() && !found.is_dyn() && *wanted != found => {
                    complaints.push(Complaint {
                        at: item.id,
                        words: format!("expected type '{wanted}' but found '{found}'"),
                    });
                    return;
                }
                Some(_) => {}
                None => first = Some(found),
            }
        }
    };
    match &part.expr {
        Expr::List(list) if !is_mixed => alike(list.elements.iter().collect()),
        Expr::Map(map) if !is_mixed => {
            let entries = || {
                map.entries.iter().filter_map(|entry| match &entry.expr {
                    EntryExpr::MapEntry(entry) => Some(entry),
                    EntryExpr::StructField(_) => None,
                })
            };
            alike(entries().map(|entry| &entry.key).collect());
            alike(entries().map(|entry| &entry.value).collect());
        }
        Expr::Call(call) => {
            let text = call.args.last().and_then(|arg| match &arg.expr {
                Expr::Literal(LiteralValue::String(text)) => Some((arg.id, text.inner())),
                _ => None,
            });
            if let Some((at, text)) = text {
                let fine = match (call.func_name.as_str(), &call.target) {
                    ("duration", None) => GoDuration::parse(text).is_ok(),
                    ("timestamp", None) => crate::time::timestamp(text).is_some(),
                    ("matches", _) => regex_syntax::parse(text).is_ok(),
                    _ => true,
                };
                if !fine {
                    complaints.push(Complaint {
                        at,
                        words: format!("invalid {} argument", call.func_name),
                    });
                }
            }
        }
        _ => {}
    }
    let formats = matches!(&part.expr, Expr::Call(call) if call.func_name == "format");
    for inner in parts(&part.expr) {
        check(inner, formats, types, complaints);
    }
}

/// The parts of an expression, in order.
fn parts(expression: &Expr) -> Vec<&IdedExpr> {
    match expression {
        Expr::Call(call) => call
            .target
            .iter()
            .map(AsRef::as_ref)
            .chain(&call.args)
            .collect(),
        Expr::Select(select) => vec![&select.operand],
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map
            .entries
            .iter()
            .flat_map(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
                EntryExpr::StructField(field) => vec![&field.value],
            })
            .collect(),
        Expr::Comprehension(one) => vec![
            &one.iter_range,
            &one.accu_init,
            &one.loop_cond,
            &one.loop_step,
            &one.result,
        ],
        _ => Vec::new(),
    }
}
