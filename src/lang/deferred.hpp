// Reads whose place in the program is found out later: of languages in which `a[i]` is an object before it is
// known whether it is read, or what is written. Such a read is recorded before the next statement, so a value
// is what it was where it is written. The reads of one statement of the user's are recorded from the last to
// the first, as those of a C++ program that g++ compiles are.
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
