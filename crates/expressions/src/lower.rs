//! What the interpreter cannot do by itself is said in words that it understands: times under operators, and loops with
//! two variables.

use cel::IdedExpr;
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators};

use crate::check::Checked;
use crate::types::Type;

/// Operators and conversions that times have functions of ours for.
const OF_TIMES: [(&str, &str); 9] = [
    (operators::LESS, "@time_less"),
    (operators::LESS_EQUALS, "@time_less_equals"),
    (operators::GREATER, "@time_greater"),
    (operators::GREATER_EQUALS, "@time_greater_equals"),
    (operators::ADD, "@time_add"),
    (operators::SUBSTRACT, "@time_sub"),
    ("string", "@time_string"),
    ("int", "@time_int"),
    ("sum", "@time_sum"),
];

pub fn lower(mut expression: IdedExpr, checked: &Checked) -> IdedExpr {
    visit(&mut expression, checked);
    expression
}

/// Texts have methods of these names as well.
const OF_LISTS: [(&str, &str); 2] = [
    ("indexOf", "@list_index_of"),
    ("lastIndexOf", "@list_last_index_of"),
];

fn is_time(kind: &Type) -> bool {
    kind.is_time() || matches!(kind, Type::List(item) if item.is_time())
}

fn visit(part: &mut IdedExpr, checked: &Checked) {
    match &mut part.expr {
        Expr::Call(call) => {
            let mut all = call.target.iter().map(AsRef::as_ref).chain(&call.args);
            if all.any(|arg| is_time(&checked.of(arg)))
                && let Some((_, name)) = OF_TIMES.iter().find(|(name, _)| call.func_name == *name)
            {
                call.func_name = (*name).to_owned();
            }
            let target = call.target.as_deref().map(|target| checked.of(target));
            if matches!(target, Some(Type::List(_)))
                && let Some((_, name)) = OF_LISTS.iter().find(|(name, _)| call.func_name == *name)
            {
                call.func_name = (*name).to_owned();
            }
            if let Some(target) = &mut call.target {
                visit(target, checked);
            }
            for arg in &mut call.args {
                visit(arg, checked);
            }
        }
        Expr::Select(select) => visit(&mut select.operand, checked),
        Expr::List(list) => {
            for item in &mut list.elements {
                visit(item, checked);
            }
        }
        Expr::Map(map) => {
            for entry in &mut map.entries {
                match &mut entry.expr {
                    EntryExpr::MapEntry(entry) => {
                        visit(&mut entry.key, checked);
                        visit(&mut entry.value, checked);
                    }
                    EntryExpr::StructField(field) => visit(&mut field.value, checked),
                }
            }
        }
        Expr::Comprehension(one) => {
            for inner in [
                &mut one.iter_range,
                &mut one.accu_init,
                &mut one.loop_cond,
                &mut one.loop_step,
                &mut one.result,
            ] {
                visit(inner, checked);
            }
            pair(one);
        }
        _ => {}
    }
}

/// A loop with two variables is one over pairs, whose parts stand where the variables stood.
fn pair(one: &mut ComprehensionExpr) {
    let Some(second) = one.iter_var2.take() else {
        return;
    };
    let range = std::mem::take(&mut one.iter_range);
    one.iter_range = IdedExpr {
        id: range.id,
        expr: Expr::Call(CallExpr {
            func_name: "@pairs".to_owned(),
            target: None,
            args: vec![range],
        }),
    };
    // A name of its own: loops may stand within loops.
    let pair = format!("@pair{}", one.iter_range.id);
    let first = std::mem::replace(&mut one.iter_var, pair.clone());
    for inner in [&mut one.loop_cond, &mut one.loop_step] {
        replace(inner, &first, &pair, 0);
        replace(inner, &second, &pair, 1);
    }
}

/// With a part of the pair wherever the name stands.
fn replace(part: &mut IdedExpr, name: &str, pair: &str, index: i64) {
    match &mut part.expr {
        Expr::Ident(found) if found == name => {
            let inner = |expr| IdedExpr { id: part.id, expr };
            part.expr = Expr::Call(CallExpr {
                func_name: operators::INDEX.to_owned(),
                target: None,
                args: vec![
                    inner(Expr::Ident(pair.to_owned())),
                    inner(Expr::Literal(LiteralValue::Int(index.into()))),
                ],
            });
        }
        Expr::Call(call) => {
            if let Some(target) = &mut call.target {
                replace(target, name, pair, index);
            }
            call.args
                .iter_mut()
                .for_each(|arg| replace(arg, name, pair, index));
        }
        Expr::Select(select) => replace(&mut select.operand, name, pair, index),
        Expr::List(list) => list
            .elements
            .iter_mut()
            .for_each(|item| replace(item, name, pair, index)),
        Expr::Map(map) => {
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                    replace(&mut entry.key, name, pair, index);
                    replace(&mut entry.value, name, pair, index);
                }
            }
        }
        Expr::Comprehension(one) => {
            replace(&mut one.iter_range, name, pair, index);
            replace(&mut one.accu_init, name, pair, index);
            // Names that are made anew within are others.
            if one.iter_var != name && one.accu_var != name {
                for inner in [&mut one.loop_cond, &mut one.loop_step, &mut one.result] {
                    replace(inner, name, pair, index);
                }
            }
        }
        _ => {}
    }
}
