//! The sandboxes that are being made ahead of their invocations. Pure.
//!
//! One is made for an invocation that is expected, if none begins before it is booked: what it was for has come then.
//! An invocation that finds no idle sandbox of its function, but one being made, waits for that one: it was begun before
//! another could be. It has its turn to run meanwhile, as who makes a sandbox has, and takes whatever comes first, that
//! one or one that another invocation gives back. When the making fails, or has lasted too long for it, it is served as
//! if there had never been one, in its place among those who wait.

use std::collections::HashSet;
use std::sync::Arc;

use super::concurrency::{Which, which};
use crate::function::Function;

/// What is expected, and what is being made for that.
#[derive(Default)]
pub(super) struct MadeAhead {
    expected: HashSet<Which>,
    /// The functions of the sandboxes, one entry each.
    making: Vec<Arc<Function>>,
}

impl MadeAhead {
    /// An invocation of `function` may come. False if that is known.
    pub(super) fn expect(&mut self, function: &Which) -> bool {
        self.expected.insert(function.clone())
    }

    /// It has come, or is expected no more.
    pub(super) fn expect_no_more(&mut self, function: &Which) {
        self.expected.remove(function);
    }

    /// An invocation begins.
    pub(super) fn came(&mut self, function: &Function) {
        if !self.expected.is_empty() {
            self.expected.remove(&which(function));
        }
    }

    pub(super) fn expects(&self, function: &Function) -> bool {
        self.expected.contains(&which(function))
    }

    /// How many are being made of this version of a function.
    pub(super) fn of(&self, function: &Function) -> usize {
        self.making.iter().filter(|one| one.same_version(function)).count()
    }

    pub(super) fn begins(&mut self, function: &Arc<Function>) {
        self.making.push(Arc::clone(function));
    }

    /// It is made, or never will be.
    pub(super) fn ends(&mut self, function: &Function) {
        if let Some(at) = self.making.iter().position(|one| one.same_version(function)) {
            self.making.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::{ByteSize, Monotonic};

    use super::super::tests::{LIMITS, ask, book_ahead, pool, sized};
    use super::super::{Admission, Answer, PoolLimits, PoolUse, SandboxPool, Ticket};
    use super::*;

    /// One that waits for the sandbox that is being made of `function`.
    fn waits(pool: &mut SandboxPool<u32>, function: &Arc<Function>) -> Ticket {
        match ask(pool, function) {
            Answer::Waiting(ticket, why) if why.contains("already") => ticket,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_invocation_takes_the_sandbox_that_is_being_made_of_its_function_and_makes_none() {
        let mut pool = pool(LIMITS);
        let f = sized("f", 128);
        assert!(book_ahead(&mut pool, &f) && !book_ahead(&mut pool, &f));
        let first = waits(&mut pool, &f);
        assert_eq!((pool.in_use().sandboxes, pool.in_use().running, pool.in_use().waiting), (1, 1, 0));
        // It is one's alone: who comes after makes its own, and so does another version.
        assert_eq!(ask(&mut pool, &f), Answer::Admitted(Admission::Cold));
        let updated = Arc::new(Function { revision_id: "revision-2".to_owned(), ..(*f).clone() });
        assert_eq!(ask(&mut pool, &updated), Answer::Admitted(Admission::Cold));
        assert_eq!(pool.serve_waiting(), []);
        assert_eq!(pool.give_back(7, Arc::clone(&f), Monotonic(0)), None);
        assert_eq!(pool.serve_waiting(), [(first, Admission::Warm(7))]);
        pool.ahead_over(&f);
        assert_eq!((pool.in_use().sandboxes, pool.in_use().running), (3, 3));
    }

    #[test]
    fn it_takes_another_that_comes_first_and_leaves_that_one_to_who_follows() {
        let mut pool = pool(LIMITS);
        let f = sized("f", 128);
        assert_eq!(ask(&mut pool, &f), Answer::Admitted(Admission::Cold));
        assert!(book_ahead(&mut pool, &f));
        let first = waits(&mut pool, &f);
        pool.finished(&f);
        assert_eq!(pool.give_back(1, Arc::clone(&f), Monotonic(0)), None);
        assert_eq!(pool.serve_waiting(), [(first, Admission::Warm(1))]);
        let second = waits(&mut pool, &f);
        assert_eq!(pool.give_back(2, Arc::clone(&f), Monotonic(0)), None);
        pool.ahead_over(&f);
        assert_eq!(pool.serve_waiting(), [(second, Admission::Warm(2))]);
    }

    #[test]
    fn it_makes_its_own_when_that_one_fails_or_takes_too_long() {
        let mut pool = pool(LIMITS);
        let f = sized("f", 128);
        assert!(book_ahead(&mut pool, &f));
        let failed = waits(&mut pool, &f);
        pool.release(f.memory);
        pool.ahead_over(&f);
        assert_eq!(pool.serve_waiting(), [(failed, Admission::Cold)]);

        assert!(book_ahead(&mut pool, &f));
        let late = waits(&mut pool, &f);
        assert!(pool.insist(late));
        assert_eq!(pool.serve_waiting(), [(late, Admission::Cold)]);
        assert!(!pool.insist(late), "it waits no longer");
        assert_eq!(pool.in_use().running, 2);
    }

    #[test]
    fn who_waits_for_it_keeps_its_turn_and_stands_in_nobodys_way() {
        let mut pool = pool(PoolLimits { invocations_max: 2, waiting_max: 1, ..LIMITS });
        let (f, g) = (sized("f", 128), sized("g", 128));
        assert!(book_ahead(&mut pool, &f));
        let first = waits(&mut pool, &f);
        // Another function has the room beside it, made ahead or not, and so have stems.
        assert!(pool.book_stem(ByteSize::mib(1)) && book_ahead(&mut pool, &sized("h", 64)));
        assert_eq!(ask(&mut pool, &g), Answer::Admitted(Admission::Cold));
        // Two have their turn; the one place to wait is not taken by who has its turn.
        let Answer::Waiting(third, why) = ask(&mut pool, &g) else { panic!("admitted") };
        assert!(why.contains("as many invocations"), "{why}");
        assert!(matches!(ask(&mut pool, &g), Answer::Refused(_)));
        assert_eq!(pool.give_back(7, Arc::clone(&f), Monotonic(0)), None);
        pool.ahead_over(&f);
        assert_eq!(pool.serve_waiting(), [(first, Admission::Warm(7))]);
        assert!(pool.leave(third).is_some());
    }

    #[test]
    fn when_it_fails_its_waiter_is_served_before_those_who_came_later() {
        let mut pool = pool(LIMITS);
        let (f, big) = (sized("f", 256), sized("big", 384));
        assert!(book_ahead(&mut pool, &f));
        let first = waits(&mut pool, &f);
        let Answer::Waiting(second, _) = ask(&mut pool, &big) else { panic!("admitted") };
        pool.release(f.memory);
        pool.ahead_over(&f);
        assert_eq!(pool.serve_waiting(), [(first, Admission::Cold)]);
        assert!(pool.leave(second).is_some());
    }

    #[test]
    fn who_leaves_and_a_pool_that_closes_give_the_turn_back() {
        let mut pool = pool(LIMITS);
        let f = sized("f", 128);
        assert!(book_ahead(&mut pool, &f));
        let ticket = waits(&mut pool, &f);
        assert!(pool.leave(ticket).is_some_and(|why| why.contains("already")) && pool.leave(ticket).is_none());
        assert_eq!(pool.in_use().running, 0);
        waits(&mut pool, &f);
        assert!(pool.close().is_empty());
        pool.ahead_over(&f);
        pool.release(f.memory);
        assert_eq!(pool.in_use(), PoolUse::default());
    }

    #[test]
    fn none_is_made_for_an_invocation_that_has_begun_since_it_was_expected() {
        let mut pool = pool(LIMITS);
        let f = sized("f", 128);
        assert!(!pool.book_ahead(&f), "none is expected");
        assert!(pool.expect(&f.namespace, &f.name) && !pool.expect(&f.namespace, &f.name));
        assert_eq!(ask(&mut pool, &f), Answer::Admitted(Admission::Cold));
        assert!(!pool.book_ahead(&f), "it has come");
        assert!(pool.expect(&f.namespace, &f.name) && pool.book_ahead(&f), "another may come");
        pool.expect_no_more(&f.namespace, &f.name);
        waits(&mut pool, &f);
    }

    #[test]
    fn a_reserve_is_in_use_while_its_invocation_waits_for_the_sandbox() {
        let mut pool = pool(LIMITS);
        let f = sized("f", 128);
        pool.set_reserved(&f.namespace, &f.name, Some(1));
        assert!(book_ahead(&mut pool, &f));
        let ticket = waits(&mut pool, &f);
        assert_eq!(ask(&mut pool, &f), Answer::OverReserved(1));
        assert_eq!(pool.give_back(7, Arc::clone(&f), Monotonic(0)), None);
        assert_eq!(pool.serve_waiting(), [(ticket, Admission::Warm(7))]);
        assert_eq!(ask(&mut pool, &f), Answer::OverReserved(1));
    }
}
