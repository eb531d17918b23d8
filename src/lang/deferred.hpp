// Reads whose position in the program is determined later, for languages in which `a[i]` is an object before
// it is known whether it is read or written. Such a read is recorded before the next statement, so its value
// is that at the point where it is written. The reads of one user statement are recorded from last to first,
// as in a C++ program compiled by g++.
#pragma once
#include "tegula/lang.hpp"

namespace tegula::lang {

// `statement` is a number that the statement has alone among its neighbours.
Expr read_later(const Element& element, int statement);
Expr read_later(const Var& variable, int statement, const Loc& at);
// The reads of `first` are recorded before those of `second`, as && and || and shifts of C++ have it.
void read_in_order(const Expr& first, const Expr& second);
// The read is left out after all: its value is used nowhere.
void leave_out(const Expr& read);

// A place of a program in another language, from what that tells of it. The texts are kept for good.
Loc made_place(const std::string& file, const std::string& function, unsigned line, unsigned column);

}  // namespace tegula::lang
