//! GNU ld's and gold's way: files in order, an archive is searched when it is reached for what is undefined at that time, and again only
//! inside its group.

use offload_object::SymbolKind;

use super::{Id, Link, Unit};
use crate::options::ItemState;

/// What is known of a symbol so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Symbol {
    Unseen,
    /// Undefined; the flag says whether an object, not only a shared object, refers to it.
    Undefined {
        by_object: bool,
    },
    UndefinedWeak,
    Common,
    /// Defined, by a shared object only.
    InShared,
    Defined,
}

struct Search {
    symbols: Vec<Symbol>,
    /// GNU ld rather than gold.
    gnu: bool,
}

impl Link<'_> {
    pub(super) fn gnu(&mut self, gnu: bool) {
        let mut search = Search { symbols: vec![Symbol::Unseen; self.symbol_count], gnu };
        for &id in &self.roots.defined {
            search.define(id);
        }
        for &id in &self.roots.undefined {
            search.refer(id, true);
        }
        self.roots.entry.iter().for_each(|&id| search.refer(id, true));
        let mut expressions = self.roots.in_expressions.clone().into_iter().peekable();
        if !gnu {
            expressions.by_ref().for_each(|(_, id)| search.refer(id, true));
        }
        let batches = self.batches();
        let mut done = 0;
        while let Some(first) = batches.get(done) {
            let Unit { position, state: ItemState { group, .. }, .. } = self.units[first.start];
            while let Some((_, id)) = expressions.next_if(|&(place, _)| place < position) {
                search.refer(id, true);
            }
            let length = match group {
                None => 1,
                Some(_) => batches[done..].iter().take_while(|batch| self.units[batch.start].state.group == group).count(),
            };
            let files = &batches[done..done + length];
            done += length;
            let mut first_pass = true;
            loop {
                // References that the first pass brought may be to what was passed already.
                let mut changed = first_pass;
                for file in files {
                    if self.units[file.start].lazy {
                        changed |= self.search_archive(file.clone(), &mut search);
                    } else if first_pass {
                        file.clone().for_each(|unit| self.read(unit, &mut search));
                    } else if gnu && self.is_shared(file.start) && self.units[file.start].state.as_needed {
                        // A library that was not needed the first time round may be now.
                        self.read(file.start, &mut search);
                    }
                }
                first_pass = false;
                if !changed || group.is_none() {
                    break;
                }
            }
        }
    }

    /// Takes members until a whole pass takes none.
    fn search_archive(&mut self, members: std::ops::Range<usize>, search: &mut Search) -> bool {
        // As in the archive's symbol index: every definition in member order. What is found defined is never looked at again.
        let mut index: Vec<(Id, usize, SymbolKind)> = Vec::new();
        for member in members {
            let defines = |kind| !matches!(kind, SymbolKind::Undefined | SymbolKind::UndefinedWeak);
            let symbols = self.symbols[member].iter().filter(|(_, kind)| defines(*kind));
            index.extend(symbols.map(|&(id, kind)| (id, member, kind)));
        }
        let mut any = false;
        loop {
            let mut changed = false;
            index.retain(|&(id, member, kind)| {
                if self.taken[member] {
                    return false;
                }
                match search.symbols[id as usize] {
                    Symbol::Undefined { .. } => {}
                    // GNU ld replaces a common symbol by a strong definition from an archive.
                    Symbol::Common if search.gnu && kind == SymbolKind::Defined => {}
                    Symbol::Unseen | Symbol::UndefinedWeak => return true,
                    Symbol::Common => return search.gnu,
                    Symbol::InShared | Symbol::Defined => return false,
                }
                self.taken[member] = true;
                self.read(member, search);
                changed = true;
                false
            });
            if !changed {
                return any;
            }
            any = true;
        }
    }

    /// Adds a unit's symbols to what is known.
    fn read(&self, unit: usize, search: &mut Search) {
        let shared = self.is_shared(unit);
        if shared && search.gnu && self.units[unit].state.as_needed {
            let needed = self.symbols[unit].iter().any(|&(id, kind)| {
                matches!(kind, SymbolKind::Defined | SymbolKind::DefinedWeak | SymbolKind::Common)
                    && search.symbols[id as usize] == Symbol::Undefined { by_object: true }
            });
            // GNU ld forgets a library that nothing needed when it came by.
            if !needed {
                return;
            }
        }
        for &(id, kind) in &self.symbols[unit] {
            match kind {
                SymbolKind::Undefined if shared => search.refer(id, false),
                SymbolKind::Undefined => search.refer(self.wrapped(id), true),
                SymbolKind::UndefinedWeak if shared => search.refer_weakly(id),
                SymbolKind::UndefinedWeak => search.refer_weakly(self.wrapped(id)),
                _ if shared => search.define_in_shared(id),
                SymbolKind::Common => search.define_common(id),
                SymbolKind::Defined | SymbolKind::DefinedWeak => search.define(id),
            }
        }
    }
}

impl Search {
    fn refer(&mut self, id: Id, by_object: bool) {
        let symbol = &mut self.symbols[id as usize];
        match symbol {
            // In gold a shared object's reference does not make a weak one strong.
            Symbol::UndefinedWeak if !by_object && !self.gnu => {}
            Symbol::Unseen | Symbol::UndefinedWeak => *symbol = Symbol::Undefined { by_object },
            Symbol::Undefined { by_object: flag } => *flag |= by_object,
            Symbol::Common | Symbol::InShared | Symbol::Defined => {}
        }
    }

    fn refer_weakly(&mut self, id: Id) {
        let symbol = &mut self.symbols[id as usize];
        if *symbol == Symbol::Unseen {
            *symbol = Symbol::UndefinedWeak;
        }
    }

    fn define(&mut self, id: Id) {
        self.symbols[id as usize] = Symbol::Defined;
    }

    fn define_common(&mut self, id: Id) {
        let symbol = &mut self.symbols[id as usize];
        if *symbol != Symbol::Defined {
            *symbol = Symbol::Common;
        }
    }

    fn define_in_shared(&mut self, id: Id) {
        let symbol = &mut self.symbols[id as usize];
        if matches!(symbol, Symbol::Unseen | Symbol::UndefinedWeak | Symbol::Undefined { .. }) {
            *symbol = Symbol::InShared;
        }
    }
}
