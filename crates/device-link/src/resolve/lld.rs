//! lld's way: lazy symbols stay in the table, so an archive serves references from anywhere on the line; a reference takes the member at
//! once, and the first member that offers a symbol keeps it.

use offload_object::SymbolKind;

use super::{Id, Link};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Symbol {
    Unseen,
    Undefined,
    /// Only a shared object refers to it: an object that refers to it weakly makes it weak.
    UndefinedInShared,
    UndefinedWeak,
    /// Offered by this unit; the flag says that there is a reference and that it is weak.
    Lazy(usize, bool),
    /// Common in an object.
    Common,
    InShared,
    DefinedWeak,
    Defined,
}

struct Table {
    symbols: Vec<Symbol>,
    /// A strong definition in an archive that comes later replaces a common symbol.
    fortran_common: bool,
}

impl Link<'_> {
    pub(super) fn lld(&mut self) {
        let mut table = Table { symbols: vec![Symbol::Unseen; self.symbol_count], fortran_common: self.fortran_common };
        // -u comes before all files.
        for id in self.roots.undefined.clone() {
            self.refer(id, &mut table);
        }
        for unit in 0..self.units.len() {
            if self.units[unit].lazy {
                self.offer(unit, &mut table);
            } else if self.is_shared(unit) {
                self.read_shared(unit, &mut table);
            } else {
                self.read_object(unit, &mut table);
            }
        }
        let expressions = self.roots.in_expressions.iter().map(|&(_, id)| id);
        let late: Vec<Id> = self.roots.entry.into_iter().chain(expressions).collect();
        for id in late {
            self.refer(id, &mut table);
        }
        for (symbol, wrap, real) in self.roots.wraps.clone() {
            let known = table.symbols[symbol as usize];
            if known == Symbol::Unseen {
                continue;
            }
            // The wrapper and, for its sake, the symbol are referred to as strongly as the symbol has been.
            if !matches!(known, Symbol::UndefinedWeak | Symbol::DefinedWeak | Symbol::Lazy(_, true)) {
                self.refer(wrap, &mut table);
                if table.symbols[real as usize] != Symbol::Unseen {
                    self.refer(symbol, &mut table);
                }
            }
            self.refer(real, &mut table);
        }
    }

    fn offer(&mut self, unit: usize, table: &mut Table) {
        for position in 0..self.symbols[unit].len() {
            if self.taken[unit] {
                return;
            }
            let (id, kind) = self.symbols[unit][position];
            if matches!(kind, SymbolKind::Undefined | SymbolKind::UndefinedWeak) {
                continue;
            }
            match table.symbols[id as usize] {
                Symbol::Unseen => table.symbols[id as usize] = Symbol::Lazy(unit, false),
                Symbol::UndefinedWeak => table.symbols[id as usize] = Symbol::Lazy(unit, true),
                Symbol::Undefined | Symbol::UndefinedInShared => self.take(unit, table),
                Symbol::Common if table.fortran_common && kind == SymbolKind::Defined => self.take(unit, table),
                _ => {}
            }
        }
    }

    fn take(&mut self, unit: usize, table: &mut Table) {
        if !self.taken[unit] {
            self.taken[unit] = true;
            self.read_object(unit, table);
        }
    }

    /// Definitions first, then references, each of which may take a unit that is read at once. A stack instead of recursion: chains of
    /// members can be as long as an archive.
    fn read_object(&mut self, unit: usize, table: &mut Table) {
        let mut stack = vec![(unit, 0)];
        self.define_all(unit, table);
        while let Some((unit, position)) = stack.pop() {
            let Some(&(id, kind)) = self.symbols[unit].get(position) else { continue };
            stack.push((unit, position + 1));
            let symbol = &mut table.symbols[id as usize];
            match (kind, *symbol) {
                (SymbolKind::UndefinedWeak, Symbol::Unseen | Symbol::UndefinedInShared) => *symbol = Symbol::UndefinedWeak,
                (SymbolKind::UndefinedWeak, Symbol::Lazy(offering, _)) => *symbol = Symbol::Lazy(offering, true),
                (SymbolKind::Undefined, Symbol::Unseen | Symbol::UndefinedWeak | Symbol::UndefinedInShared) => *symbol = Symbol::Undefined,
                (SymbolKind::Undefined, Symbol::Lazy(offering, _)) => {
                    *symbol = Symbol::Undefined;
                    if !self.taken[offering] {
                        self.taken[offering] = true;
                        self.define_all(offering, table);
                        stack.push((offering, 0));
                    }
                }
                _ => {}
            }
        }
    }

    fn define_all(&mut self, unit: usize, table: &mut Table) {
        for &(id, kind) in &self.symbols[unit] {
            let symbol = &mut table.symbols[id as usize];
            match kind {
                SymbolKind::Defined => *symbol = Symbol::Defined,
                SymbolKind::DefinedWeak if !matches!(symbol, Symbol::Defined | Symbol::Common) => *symbol = Symbol::DefinedWeak,
                SymbolKind::Common if *symbol != Symbol::Defined => *symbol = Symbol::Common,
                _ => {}
            }
        }
    }

    fn read_shared(&mut self, unit: usize, table: &mut Table) {
        for position in 0..self.symbols[unit].len() {
            let (id, kind) = self.symbols[unit][position];
            let symbol = &mut table.symbols[id as usize];
            match (kind, *symbol) {
                // A shared object's reference does not make a weak one strong.
                (SymbolKind::Undefined, Symbol::UndefinedWeak) => {}
                (SymbolKind::Undefined, Symbol::Unseen) => *symbol = Symbol::UndefinedInShared,
                (SymbolKind::Undefined, Symbol::Lazy(offering, _)) => self.take(offering, table),
                (SymbolKind::Undefined, _) => {}
                (SymbolKind::UndefinedWeak, Symbol::Unseen) => *symbol = Symbol::UndefinedWeak,
                (SymbolKind::UndefinedWeak, Symbol::Lazy(offering, _)) => *symbol = Symbol::Lazy(offering, true),
                (SymbolKind::UndefinedWeak, _) => {}
                // It does displace what an archive only offers.
                (_, Symbol::Unseen | Symbol::Undefined | Symbol::UndefinedInShared | Symbol::UndefinedWeak | Symbol::Lazy(..)) => {
                    *symbol = Symbol::InShared
                }
                _ => {}
            }
        }
    }

    fn refer(&mut self, id: Id, table: &mut Table) {
        match table.symbols[id as usize] {
            Symbol::Unseen | Symbol::UndefinedWeak | Symbol::UndefinedInShared => table.symbols[id as usize] = Symbol::Undefined,
            Symbol::Lazy(unit, _) => self.take(unit, table),
            _ => {}
        }
    }
}
