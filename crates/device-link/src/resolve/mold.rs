//! mold's way: every symbol is bound to its best definition over all files at once, then what the objects reach is marked alive.

use std::collections::VecDeque;

use offload_object::SymbolKind;

use super::{Id, Link};

/// How good a definition is; the smaller, the better. Ties go to the file that comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Strong,
    Weak,
    /// In a shared object or a lazy unit.
    StrongElsewhere,
    WeakElsewhere,
    Common,
    LazyCommon,
}

/// The definition that a symbol is bound to.
#[derive(Debug, Clone, Copy)]
struct Binding {
    rank: Rank,
    unit: usize,
    kind: SymbolKind,
}

impl Link<'_> {
    pub(super) fn mold(&mut self) {
        let mut bindings: Vec<Option<Binding>> = vec![None; self.symbol_count];
        for unit in 0..self.units.len() {
            let elsewhere = self.units[unit].lazy || self.is_shared(unit);
            for &(id, kind) in &self.symbols[unit] {
                let rank = match (kind, elsewhere) {
                    (SymbolKind::Undefined | SymbolKind::UndefinedWeak, _) => continue,
                    (SymbolKind::Defined, false) => Rank::Strong,
                    (SymbolKind::DefinedWeak, false) => Rank::Weak,
                    (SymbolKind::Defined, true) => Rank::StrongElsewhere,
                    (SymbolKind::DefinedWeak, true) => Rank::WeakElsewhere,
                    (SymbolKind::Common, false) => Rank::Common,
                    (SymbolKind::Common, true) => Rank::LazyCommon,
                };
                let binding = &mut bindings[id as usize];
                if binding.is_none_or(|best| rank < best.rank) {
                    *binding = Some(Binding { rank, unit, kind });
                }
            }
        }
        let roots = &self.roots;
        let named = [roots.entry, roots.init, roots.fini].into_iter().flatten();
        let named: Vec<Id> = named.chain(roots.undefined.iter().copied()).chain(roots.in_expressions.iter().map(|&(_, id)| id)).collect();
        // A shared object after --as-needed is not alive until something reaches it, so what it refers to does not count before.
        let mut alive: Vec<bool> =
            (0..self.units.len()).map(|unit| self.taken[unit] && !(self.is_shared(unit) && self.units[unit].state.as_needed)).collect();
        let mut queue: VecDeque<usize> = (0..self.units.len()).filter(|&unit| alive[unit]).collect();
        let mut reach = |id: Id, queue: &mut VecDeque<usize>| {
            if let Some(Binding { unit, .. }) = bindings[id as usize]
                && !alive[unit]
            {
                alive[unit] = true;
                queue.push_back(unit);
            }
        };
        for id in named {
            reach(id, &mut queue);
        }
        while let Some(unit) = queue.pop_front() {
            let shared = self.is_shared(unit);
            for &(id, kind) in &self.symbols[unit] {
                match kind {
                    // A shared object's weak references count as well.
                    SymbolKind::Undefined | SymbolKind::UndefinedWeak if shared => reach(id, &mut queue),
                    SymbolKind::Undefined => reach(self.wrapped(id), &mut queue),
                    // A common symbol gives way to a definition elsewhere.
                    SymbolKind::Common if bindings[id as usize].is_some_and(|best| best.kind != SymbolKind::Common) => {
                        reach(id, &mut queue);
                    }
                    _ => {}
                }
            }
        }
        for (taken, alive) in self.taken.iter_mut().zip(alive) {
            *taken |= alive;
        }
    }
}
